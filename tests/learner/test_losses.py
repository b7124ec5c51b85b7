"""The arithmetic of the loss, worked by hand. The probabilities are chosen so that ratios and weights are plain."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, tensor

from clawd.config import LossSettings
from clawd.learner.train.losses import (
    LossInputs,
    Mean,
    clipped_surrogate,
    divergence_term,
    grpo_term,
    hybrid_loss,
    k3,
    kl_base_term,
    merge,
    opd_term,
    response_mean,
    support_weights,
)

CLOSE = {"abs": 1e-6, "rel": 1e-6}
SETTINGS = LossSettings()


def logs(values: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    """Probabilities as log-probabilities."""
    return torch.tensor(values, dtype=dtype).log()


def one_sample(**changes: Tensor | None) -> LossInputs:
    """B = 1, T = 2, K = 2: scored +1 and hinted; all policies agree, so each ratio is 1."""
    old = logs([0.5, 0.25])[None]
    support = logs([0.6, 0.2, 0.5, 0.5]).reshape(1, 2, 2)
    inputs = LossInputs(
        tokens=torch.ones(1, 2, dtype=torch.bool),
        cur=old.clone(),
        old=old,
        rollout=old.clone(),
        advantages=torch.ones(1, 2, dtype=torch.float64),
        scored=tensor([True]),
        cur_support=support.clone(),
        old_support=support,
        teacher_support=support.clone(),
        support=torch.ones(1, 2, 2, dtype=torch.bool),
        hinted=tensor([True]),
    )
    return replace(inputs, **changes)


class TestGrpo:
    def test_at_ratio_one_the_loss_is_minus_the_advantage(self):
        loss, metrics = grpo_term(one_sample(advantages=tensor([[1.0, -1.0]])), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([-1.0, 1.0], **CLOSE)
        assert metrics["grpo/ratio"].value == 1.0
        assert metrics["grpo/clipped"].value == 0.0

    def test_clip_by_hand(self):
        # ρ = 1.5 and 0.5. A = +1: max(-1.5, -1.28) = -1.28 and max(-0.5, -0.8) = -0.5.
        cur = logs([0.75, 0.125])[None]
        loss, metrics = grpo_term(one_sample(cur=cur), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([-1.28, -0.5], **CLOSE)
        assert metrics["grpo/clipped"].value == 0.5
        # A = -1: max(1.5, 1.28) = 1.5 and max(0.5, 0.8) = 0.8.
        loss, _ = grpo_term(one_sample(cur=cur, advantages=-torch.ones(1, 2)), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([1.5, 0.8], **CLOSE)

    def test_importance_weight_by_hand(self):
        # ℓ_old - ℓ_rollout = log(0.5/0.4) and log(0.25/0.05): weights 1.25 and min(5, 2) = 2.
        loss, metrics = grpo_term(one_sample(rollout=logs([0.4, 0.05])[None]), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([-1.25, -2.0], **CLOSE)
        assert metrics["grpo/importance_weight"].value == pytest.approx(1.625, **CLOSE)

    def test_without_a_score_there_is_no_term_and_no_metric(self):
        loss, metrics = grpo_term(one_sample(scored=tensor([False]), cur=logs([0.75, 0.125])[None]), SETTINGS)
        assert loss.tolist() == [[0.0, 0.0]]
        assert metrics["grpo/ratio"] == Mean(0.0, 0.0)

    def test_kl_to_old_by_hand(self):
        # ρ = 1.5 and 0.5 at samples of old: k3 of KL(old ‖ cur) is ρ - 1 - log ρ.
        _, metrics = grpo_term(one_sample(cur=logs([0.75, 0.125])[None]), SETTINGS)
        expected = (0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2
        assert metrics["grpo/kl_old"].value == pytest.approx(expected, **CLOSE)


class TestOpd:
    def test_by_hand_at_ratio_one(self):
        # Position 0: old 0.6, 0.2, so w = 0.75, 0.25. Teacher 0.3, 0.4: Δ = log 0.5, log 2, both inside C = 1.
        # L = -(0.75 log 0.5 + 0.25 log 2) = 0.5 log 2. Position 1: teacher = old, so 0.
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        loss, metrics = opd_term(one_sample(teacher_support=teacher), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([0.5 * math.log(2), 0.0], **CLOSE)
        assert metrics["opd/delta_abs"].value == pytest.approx(0.5 * math.log(2), **CLOSE)
        assert metrics["opd/delta_clipped"].value == 0.0
        assert metrics["opd/support_size"].value == 2.0

    def test_delta_clip_by_hand(self):
        # Teacher 0.6 e², 0.2 e⁻³: Δ = 2, -3, clipped to 1, -1: L = -(0.75 - 0.25) = -0.5; unclipped -(1.5 - 0.75).
        teacher = logs([0.6, 0.2, 0.5, 0.5]).reshape(1, 2, 2) + tensor([[[2.0, -3.0], [0.0, 0.0]]])
        loss, metrics = opd_term(one_sample(teacher_support=teacher), SETTINGS)
        assert loss[0, 0].item() == pytest.approx(-0.5, **CLOSE)
        assert metrics["opd/delta_clipped"].value == 0.5
        loss, _ = opd_term(one_sample(teacher_support=teacher), LossSettings(delta_clip=None))
        assert loss[0, 0].item() == pytest.approx(-0.75, **CLOSE)

    def test_ratio_clip_of_every_entry_by_hand(self):
        # A = 0.75 log 0.5 (< 0) with ρ = 0.5: max(-A 0.5, -A 0.8) = -0.8 A.
        # A = 0.25 log 2 (> 0) with ρ = 1.5: max(-A 1.5, -A 1.28) = -1.28 A.
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        cur = logs([0.3, 0.3, 0.5, 0.5]).reshape(1, 2, 2)
        loss, metrics = opd_term(one_sample(teacher_support=teacher, cur_support=cur), SETTINGS)
        expected = 0.8 * 0.75 * math.log(2) - 1.28 * 0.25 * math.log(2)
        assert loss[0, 0].item() == pytest.approx(expected, **CLOSE)
        assert metrics["opd/clipped"].value == 0.5

    def test_a_smaller_support_renormalises_the_weights(self):
        # Only v = 1 is left at position 0: w = 1, Δ = log 2.
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        support = tensor([[[False, True], [False, False]]])
        loss, metrics = opd_term(one_sample(teacher_support=teacher, support=support), SETTINGS)
        assert loss.tolist()[0] == pytest.approx([-math.log(2), 0.0], **CLOSE)
        assert metrics["opd/support_size"].value == 1.0

    def test_without_a_hint_there_is_no_term(self):
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        loss, metrics = opd_term(one_sample(teacher_support=teacher, hinted=tensor([False])), SETTINGS)
        assert loss.tolist() == [[0.0, 0.0]]
        assert metrics["opd/delta_abs"] == Mean(0.0, 0.0)

    def test_weights_of_an_empty_support_are_zero(self):
        weights = support_weights(torch.zeros(1, 1, 3), torch.zeros(1, 1, 3, dtype=torch.bool))
        assert weights.tolist() == [[[0.0, 0.0, 0.0]]]


class TestDivergence:
    def test_it_stands_for_the_clipped_surrogate(self):
        # Mean over the response of (0.3, 0.1), weighted by w_opd = 2, beside a GRPO term of -1.
        inputs = one_sample(divergence=tensor([[0.3, 0.1]], dtype=torch.float64))
        loss, metrics = hybrid_loss(inputs, LossSettings(opd_weight=2.0))
        assert float(loss) == pytest.approx(-1 + 2 * 0.2, **CLOSE)
        assert metrics["opd/kl"].value == pytest.approx(0.2, **CLOSE)
        assert "opd/clipped" not in metrics

    def test_only_responses_with_a_hint_have_it(self):
        divergence = tensor([[0.3, float("nan")]], dtype=torch.float64)
        padded = one_sample(divergence=divergence, tokens=tensor([[True, False]]))
        assert divergence_term(padded)[0].tolist() == [[0.3, 0.0]]
        loss, metrics = divergence_term(one_sample(divergence=divergence, hinted=tensor([False])))
        assert loss.tolist() == [[0.0, 0.0]]
        assert metrics["opd/kl"].weight == 0


class TestKl:
    def test_k3_by_hand(self):
        # d = ℓ_base - ℓ_cur = log 2: 2 - 1 - log 2.
        estimate, metrics = kl_base_term(logs([0.25])[None], logs([0.5])[None], tensor([[True]]))
        assert estimate.item() == pytest.approx(1 - math.log(2), **CLOSE)
        assert metrics["kl_base/k3"].value == pytest.approx(1 - math.log(2), **CLOSE)

    def test_k3_is_an_unbiased_estimate_of_the_divergence(self):
        cur, base = logs([0.7, 0.2, 0.1]), logs([0.4, 0.4, 0.2])
        exact = (cur.exp() * (cur - base)).sum()
        assert (cur.exp() * k3(base - cur)).sum().item() == pytest.approx(exact.item(), **CLOSE)

    def test_its_weight_enters_the_hybrid_loss(self):
        inputs = one_sample(scored=tensor([False]), hinted=tensor([False]), base=logs([1.0, 0.25])[None])
        loss, _ = hybrid_loss(inputs, LossSettings(kl_base_weight=0.1))
        assert loss.item() == pytest.approx(0.1 * (1 - math.log(2)) / 2, **CLOSE)  # d = log 2 and 0


class TestHybrid:
    def test_weights_and_means_by_hand(self):
        # Sample 0: T = 2, GRPO -1 at both; OPD 0.5 log 2 and 0: mean -1 · 2 + 3 · 0.25 log 2 with w_rl = 2, w_opd = 3.
        # Sample 1: T = 1, unscored, unhinted: 0. Mean over two samples.
        first = one_sample(teacher_support=logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2))
        inputs = stacked(
            first, one_sample(scored=tensor([False]), hinted=tensor([False]), tokens=tensor([[True, False]]))
        )
        loss, _ = hybrid_loss(inputs, LossSettings(rl_weight=2, opd_weight=3))
        assert loss.item() == pytest.approx((-2 + 3 * 0.25 * math.log(2)) / 2, **CLOSE)

    def test_a_long_response_weighs_no_more_than_a_short_one(self):
        short = one_sample(hinted=tensor([False]), tokens=tensor([[True, False]]), advantages=-torch.ones(1, 2))
        loss, _ = hybrid_loss(stacked(one_sample(hinted=tensor([False])), short), SETTINGS)
        assert loss.item() == pytest.approx(0.0, **CLOSE)

    def test_padding_may_hold_anything(self):
        wild = torch.full((1, 2), torch.nan, dtype=torch.float64)
        wild[0, 0] = math.log(0.5)
        cur = wild.clone().requires_grad_()
        inputs = one_sample(cur=cur, old=wild, rollout=wild, tokens=tensor([[True, False]]), hinted=tensor([False]))
        loss, metrics = hybrid_loss(inputs, SETTINGS)
        loss.backward()
        assert loss.item() == pytest.approx(-1.0, **CLOSE)
        assert cur.grad is not None and cur.grad.tolist() == [[-1.0, 0.0]]
        assert metrics["grpo/ratio"] == Mean(1.0, 1.0)

    def test_micro_batches_sum_up_to_the_batch(self):
        first = one_sample(cur=logs([0.6, 0.2])[None])
        second = one_sample(advantages=-torch.ones(1, 2), cur=logs([0.4, 0.3])[None])
        whole, whole_metrics = hybrid_loss(stacked(first, second), SETTINGS)
        parts = [hybrid_loss(part, SETTINGS, samples=2) for part in (first, second)]
        assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item(), **CLOSE)
        merged = merge(parts[0][1], parts[1][1])
        assert {k: m.value for k, m in merged.items()} == pytest.approx({k: m.value for k, m in whole_metrics.items()})

    def test_an_empty_batch_is_a_no_op(self):
        cur = torch.zeros(0, 2, requires_grad=True)
        none = torch.zeros(0, 2)
        cube = torch.zeros(0, 2, 4)
        no = torch.zeros(0, dtype=torch.bool)
        inputs = LossInputs(none.bool(), cur, none, none, none, no, cube, cube, cube, cube.bool(), no)
        loss, metrics = hybrid_loss(inputs, SETTINGS)
        loss.backward()
        assert loss.item() == 0.0
        assert metrics == {}

    def test_response_mean_of_nothing_is_zero(self):
        assert response_mean(torch.ones(1, 3), torch.zeros(1, 3, dtype=torch.bool)).tolist() == [0.0]


class TestMethods:
    def both(self) -> LossInputs:
        """GRPO -1 at both tokens, OPD 0.5 log 2 and 0: means -1 and 0.25 log 2."""
        return one_sample(teacher_support=logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2))

    @pytest.mark.parametrize(
        ("method", "expected"),
        [("hybrid", -1 + 0.25 * math.log(2)), ("grpo", -1.0), ("opd", 0.25 * math.log(2))],
    )
    def test_by_hand(self, method, expected):
        loss, _ = hybrid_loss(self.both(), LossSettings(method=method))
        assert loss.item() == pytest.approx(expected, **CLOSE)

    def test_a_term_that_the_method_leaves_out_has_no_gradient(self):
        for method, carried in (("grpo", "cur"), ("opd", "cur_support")):
            inputs = self.both()
            leaves = {name: getattr(inputs, name).clone().requires_grad_() for name in ("cur", "cur_support")}
            hybrid_loss(replace(inputs, **leaves), LossSettings(method=method))[0].backward()
            assert {name for name, leaf in leaves.items() if leaf.grad.abs().sum() > 0} == {carried}

    def test_the_weights_stay_settings_of_their_term(self):
        loss, _ = hybrid_loss(self.both(), LossSettings(method="grpo", rl_weight=0.5, opd_weight=9))
        assert loss.item() == pytest.approx(-0.5, **CLOSE)


class TestKeepingTheMind:
    def test_negative_weight_by_hand(self):
        inputs = one_sample(advantages=tensor([[1.0, -1.0]]))
        loss, _ = grpo_term(inputs, LossSettings(negative_weight=0.25))
        assert loss.tolist()[0] == pytest.approx([-1.0, 0.25], **CLOSE)

    def test_it_leaves_the_teacher_alone(self):
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        loss, _ = opd_term(one_sample(teacher_support=teacher), LossSettings(negative_weight=0.0))
        assert loss[0, 0].item() == pytest.approx(0.5 * math.log(2), **CLOSE)

    def test_dual_clip_by_hand(self):
        # ρ = 2, 4, 4, 0.5 with A = -1, -1, +1, -1 and c = 3: 2; min(4, 3) = 3; max(-4, -1.28) = -1.28; max(0.5, 0.8).
        log_ratio = logs([2.0, 4.0, 4.0, 0.5]).requires_grad_()
        advantage = tensor([-1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
        loss, clipped = clipped_surrogate(log_ratio, advantage, LossSettings(dual_clip=3.0))
        assert loss.tolist() == pytest.approx([2.0, 3.0, -1.28, 0.8], **CLOSE)
        assert clipped.tolist() == [0.0, 1.0, 1.0, 1.0]
        loss.sum().backward()
        assert log_ratio.grad is not None
        assert log_ratio.grad.tolist() == pytest.approx([2.0, 0.0, 0.0, 0.0], **CLOSE)

    def test_dual_clip_holds_for_entries_of_the_support(self):
        # A_v = 0.75 log 0.5 at v = 0, where ρ = 1.5 > c = 1.25; A_v = 0.25 log 2 at v = 1, where ρ = 0.5.
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        cur = logs([0.9, 0.1, 0.5, 0.5]).reshape(1, 2, 2)
        loss, _ = opd_term(one_sample(teacher_support=teacher, cur_support=cur), LossSettings(dual_clip=1.25))
        expected = 1.25 * 0.75 * math.log(2) - 0.5 * 0.25 * math.log(2)
        assert loss[0, 0].item() == pytest.approx(expected, **CLOSE)


class TestGradient:
    def test_only_cur_carries_it(self):
        names = ("cur", "old", "rollout", "advantages", "cur_support", "old_support", "teacher_support", "base")
        inputs = one_sample(base=logs([0.4, 0.3])[None], teacher_support=logs([0.3, 0.4, 0.6, 0.4]).reshape(1, 2, 2))
        leaves = {name: getattr(inputs, name).clone().requires_grad_() for name in names}
        loss, _ = hybrid_loss(replace(inputs, **leaves), LossSettings(kl_base_weight=0.1))
        loss.backward()
        assert {name for name, leaf in leaves.items() if leaf.grad is not None} == {"cur", "cur_support"}

    def test_grpo_gradient_by_hand(self):
        # ∂L/∂ℓ_cur(y_i) = -A c_i ρ_i / T while unclipped: -0.5 at ρ = 1; 0 where the clip holds (ρ = 1.5 > 1.28).
        cur = logs([0.5, 0.375])[None].requires_grad_()
        loss, _ = hybrid_loss(one_sample(cur=cur, hinted=tensor([False])), SETTINGS)
        loss.backward()
        assert cur.grad is not None and cur.grad[0].tolist() == pytest.approx([-0.5, 0.0], **CLOSE)

    def test_opd_pulls_towards_the_teacher(self):
        # ∂L/∂ℓ_cur(v) = -A_v / T: down where the teacher is below the student, up where above.
        cur = logs([0.6, 0.2, 0.5, 0.5]).reshape(1, 2, 2).requires_grad_()
        teacher = logs([0.3, 0.4, 0.5, 0.5]).reshape(1, 2, 2)
        loss, _ = hybrid_loss(one_sample(cur_support=cur, teacher_support=teacher, scored=tensor([False])), SETTINGS)
        loss.backward()
        expected = [0.75 * math.log(2) / 2, -0.25 * math.log(2) / 2]
        assert cur.grad is not None and cur.grad[0, 0].tolist() == pytest.approx(expected, **CLOSE)

    @pytest.mark.parametrize(
        "chosen",
        [
            {"kl_base_weight": 0.05},
            {"method": "grpo"},
            {"method": "opd"},
            {"negative_weight": 0.3},
            {"dual_clip": 1.1},
            {"delta_clip": None},
            {"method": "grpo", "negative_weight": 0.1, "dual_clip": 1.3, "kl_base_weight": 0.2},
        ],
    )
    def test_against_finite_differences(self, chosen):
        torch.manual_seed(1)
        inputs = random_inputs()

        def loss_of(cur: Tensor, cur_support: Tensor) -> Tensor:
            settings = LossSettings(**{"rl_weight": 0.7, "opd_weight": 1.3, **chosen})
            return hybrid_loss(replace(inputs, cur=cur, cur_support=cur_support), settings)[0]

        leaves = inputs.cur.clone().requires_grad_(), inputs.cur_support.clone().requires_grad_()
        assert torch.autograd.gradcheck(loss_of, leaves, eps=1e-6, atol=1e-7, rtol=1e-5)

    def test_the_clipped_side_is_flat_and_the_other_is_not(self):
        log_ratio = tensor([0.5, 0.5], requires_grad=True)
        loss, clipped = clipped_surrogate(log_ratio, tensor([1.0, -1.0]), SETTINGS)
        loss.sum().backward()
        assert clipped.tolist() == [1.0, 0.0]
        assert log_ratio.grad is not None and log_ratio.grad.tolist() == pytest.approx([0.0, math.exp(0.5)], **CLOSE)


class TestAdvantagesInTheLoss:
    def test_all_equal_rewards_by_hand(self):
        """A = r without a baseline: -1 everywhere, so the loss is +1. That it is skipped is `no_signal`'s to say."""
        inputs = one_sample(advantages=-torch.ones(1, 2, dtype=torch.float64), hinted=tensor([False]))
        loss, _ = hybrid_loss(stacked(inputs, inputs), SETTINGS)
        assert loss.item() == pytest.approx(1.0, **CLOSE)

    def test_a_group_without_variance_has_no_gradient(self):
        cur = logs([0.5, 0.25])[None].requires_grad_()
        inputs = one_sample(cur=cur, advantages=torch.zeros(1, 2, dtype=torch.float64), hinted=tensor([False]))
        loss, _ = hybrid_loss(inputs, SETTINGS)
        loss.backward()
        assert cur.grad is not None and cur.grad.abs().max().item() == 0.0


def stacked(first: LossInputs, second: LossInputs) -> LossInputs:
    names = [name for name in vars(first) if getattr(first, name) is not None]
    return replace(first, **{name: torch.cat([getattr(first, name), getattr(second, name)]) for name in names})


def random_inputs() -> LossInputs:
    """B = 3, T = 5, K = 4, ragged: scored, hinted, both; ratios on both sides of the clip."""
    shape, cube = (3, 5), (3, 5, 4)

    def some(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, dtype=torch.float64) * 0.3 - 2

    return LossInputs(
        tokens=torch.arange(5)[None] < tensor([[5], [3], [1]]),
        cur=some(shape),
        old=some(shape),
        rollout=some(shape),
        advantages=tensor([[1.0], [0.0], [-1.0]], dtype=torch.float64).expand(shape),
        scored=tensor([True, False, True]),
        cur_support=some(cube),
        old_support=some(cube),
        teacher_support=some(cube),
        support=torch.rand(cube) > 0.3,
        hinted=tensor([False, True, True]),
        base=some(shape),
    )
