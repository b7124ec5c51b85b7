"""From rewards to advantages, worked by hand."""

import pytest

from clawd.learner.job import Sample, Step
from clawd.learner.train.advantages import advantages_of, group_advantages, no_signal, running_mean, step_reward
from tests.learner.tiny_base import make_sample

CLOSE = {"abs": 1e-9}


def step(group: str, index: int, outcome: float, *votes: int) -> Step:
    return Step(group=group, index=index, outcome=outcome, votes=list(votes))


def of_task(number: int, task: Step) -> Sample:
    return make_sample(number, reward=None).model_copy(update={"task": task})


class TestStepReward:
    def test_outcome_plus_the_mean_of_the_votes(self):
        assert step_reward(step("t", 0, 1.0, 1, 1, -1)) == pytest.approx(4 / 3, **CLOSE)
        assert step_reward(step("t", 0, -0.5, 0, 1)) == 0.0

    def test_without_a_valid_vote_the_outcome_stands_alone(self):
        assert step_reward(step("t", 0, 0.25)) == 0.25


class TestGroups:
    def test_by_hand(self):
        # 1, 2, 3: mean 2, variance 2/3. A = ∓1 / (0.8164966 + 1e-6) = ∓1.2247434.
        advantages, flat = group_advantages([1.0, 2.0, 3.0], ["t"] * 3)
        assert advantages == pytest.approx([-1.2247434, 0.0, 1.2247434], abs=1e-7)
        assert flat == 0

    def test_groups_do_not_touch_each_other_and_may_interleave(self):
        advantages, flat = group_advantages([0.0, 10.0, 1.0, 30.0], ["a", "b", "a", "b"])
        assert advantages == pytest.approx([-0.999998, -0.9999999, 0.999998, 0.9999999], abs=1e-9)
        assert flat == 0

    def test_without_variance_there_is_no_gradient_and_it_is_counted(self):
        advantages, flat = group_advantages([0.1 + 1 / 3] * 3 + [1.0, 0.0, 7.0], ["a"] * 3 + ["b", "b", "c"])
        assert advantages[:3] == [0.0, 0.0, 0.0]  # exactly, whatever a mean of equal numbers rounds to
        assert advantages[3:5] == pytest.approx([0.999998, -0.999998], abs=1e-9)
        assert advantages[5] == 0.0
        assert flat == 2  # a group of one has none either

    def test_an_empty_batch(self):
        assert group_advantages([], []) == ([], 0)
        assert advantages_of([], 0.0) == ([], 0)


class TestOfSamples:
    def test_personal_is_the_reward_itself(self):
        samples = [
            make_sample(1, reward=1),
            make_sample(2, reward=-1),
            make_sample(3, reward=0),
            make_sample(4, None, 1),
        ]
        assert advantages_of(samples, 0.0) == ([1.0, -1.0, 0.0, 0.0], 0)

    def test_less_the_baseline_where_there_is_a_score(self):
        samples = [
            make_sample(1, reward=1),
            make_sample(2, reward=-1),
            make_sample(3, reward=0),
            make_sample(4, None, 1),
        ]
        assert advantages_of(samples, -0.5)[0] == [1.5, -0.5, 0.5, 0.0]

    def test_steps_of_one_index_of_the_rollouts_of_one_task_form_a_group(self):
        # Rollout 1 succeeds (o = 1), rollout 2 fails (o = 0). Step 0: votes equal, R = 2 and 1. Step 1: R = 0 and 1.
        samples = [
            of_task(1, step("task", 0, 1.0, 1)),
            of_task(2, step("task", 1, 1.0, -1)),
            of_task(3, step("task", 0, 0.0, 1)),
            of_task(4, step("task", 1, 0.0, 1)),
            of_task(5, step("other", 0, 0.0, 1)),
        ]
        advantages, flat = advantages_of(samples, baseline=0.3)  # a group has its own baseline
        assert advantages == pytest.approx([0.999998, -0.999998, -0.999998, 0.999998, 0.0], abs=1e-9)
        assert flat == 1

    def test_both_kinds_in_one_batch(self):
        samples = [make_sample(1, reward=-1), of_task(2, step("t", 0, 0.0)), of_task(3, step("t", 0, 1.0))]
        assert advantages_of(samples, 0.0)[0] == pytest.approx([-1.0, -0.999998, 0.999998], abs=1e-9)

    def test_a_sample_has_a_reward_or_a_task(self):
        line = make_sample(1, reward=1).model_dump() | {"task": step("t", 0, 1.0).model_dump()}
        with pytest.raises(ValueError, match="which of them scores it"):
            Sample.model_validate(line)


class TestRunningMean:
    def test_by_hand(self):
        samples = [
            make_sample(1, 1),
            make_sample(2, -1),
            make_sample(3, -1),
            make_sample(4, -1),
            make_sample(5, None, 1),
        ]
        assert running_mean(None, samples, 0.9) == -0.5  # the batch's own at first
        assert running_mean(0.5, samples, 0.9) == pytest.approx(0.4, **CLOSE)
        assert running_mean(0.5, samples, 0.0) == -0.5

    def test_without_a_score_it_stays(self):
        assert running_mean(0.25, [make_sample(1, None, 1)], 0.9) == 0.25
        assert running_mean(None, [make_sample(1, None, 1)], 0.9) is None


class TestNoSignal:
    """Case J7."""

    @pytest.mark.parametrize("reward", [-1, 1])
    def test_equal_rewards_and_no_hint(self, reward):
        samples = [make_sample(number, reward) for number in range(16)]
        assert no_signal(samples) == f"all 16 rewards are {reward:+d} and there is no hint"

    def test_every_response_cut(self):
        samples = [
            make_sample(number, (1, -1)[number % 2]).model_copy(update={"truncated": True}) for number in range(16)
        ]
        assert no_signal(samples) == "all 16 responses were cut by their token limit and there is no hint"
        for changed in (make_sample(7, 1), make_sample(7, -1, hints=1).model_copy(update={"truncated": True})):
            assert no_signal([*samples[:7], changed, *samples[8:]]) is None

    @pytest.mark.parametrize(
        "samples",
        [
            [make_sample(1, 1), make_sample(2, -1)],
            [make_sample(1, -1), make_sample(2, -1, hints=1)],
            [make_sample(1, None, hints=1), make_sample(2, None, hints=1)],
            [make_sample(1, -1)],
            [],
            [of_task(1, step("t", 0, 0.0)), of_task(2, step("t", 0, 1.0)), make_sample(3, 1), make_sample(4, 1)],
        ],
    )
    def test_something_can_be_told(self, samples):
        assert no_signal(samples) is None

    def test_groups_without_variance(self):
        flat = [of_task(1, step("a", 0, 1.0)), of_task(2, step("a", 0, 1.0)), of_task(3, step("b", 0, 0.0))]
        assert no_signal(flat) == "no group of rewards has any variance and there is no hint (3 samples)"
        assert "no group" in no_signal([*flat, make_sample(4, 1)])
