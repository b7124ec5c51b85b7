"""A real, small update of the embedded model: it learns in the direction that it is told, and goes on from there."""

import hashlib
import subprocess
import sys
from pathlib import Path

import llama_cpp
import pytest
import torch

from clawd.config import LearnSettings
from clawd.learner.job import MANIFEST_FILE, RESULT_FOLDER, HintPrompt, Manifest, Outcome, Sample
from clawd.learner.train.batch import loss_inputs, score
from clawd.learner.train.devices import make_plan
from clawd.learner.train.losses import support_weights
from clawd.learner.train.trainer import load
from clawd.learner.train.update import read_job
from tests.learner.tiny_base import write_job

SETTINGS = LearnSettings(learning_rate=5e-4, steps=2, nice=0, max_rollout_mismatch=None)  # invented log-probabilities
CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
HINT = "\n\nAnswer in one short sentence."
TURNS = [  # question, reply, reward, hinted
    ("What is the capital of Australia?", "The capital of Australia is Canberra.", 1, False),
    ("How many legs does a spider have?", "A spider has eight legs.", 1, False),
    (
        "What is a noun?",
        "Great question! A noun is a word. In the context of grammar, nouns are **very** important.",
        -1,
        False,
    ),
    (
        "Why is the sky blue?",
        "The sky appears blue because of many things. Let us explore them one by one:\n\n1.",
        None,
        True,
    ),
]


@pytest.fixture(scope="module")
def samples(embedded_model) -> list[Sample]:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(embedded_model).encode(), params)
    vocabulary = llama_cpp.llama_model_get_vocab(model)

    def ids_of(text: str) -> list[int]:
        data, ids = text.encode(), (llama_cpp.llama_token * 256)()
        count = llama_cpp.llama_tokenize(vocabulary, data, len(data), ids, 256, False, True)
        return list(ids[:count])

    made = []
    for question, reply, reward, hinted in TURNS:
        response = ids_of(reply + "<|im_end|>")
        hints = [HintPrompt(hint_id="h", text=HINT, prompt_ids=ids_of(CHAT.format(question + HINT)))] if hinted else []
        made.append(
            Sample(
                sample_id=question,
                turn_id=question,
                prompt_ids=ids_of(CHAT.format(question)),
                response_ids=response,
                rollout_logprobs=[-2.0] * len(response),
                rollout_version=None,
                reward=reward,
                hints=hints,
            )
        )
    llama_cpp.llama_model_free(model)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory, embedded_model, samples) -> Path:
    """Two updates in a row: `v1` and, from it, `v2`."""
    root = tmp_path_factory.mktemp("embedded")
    first = write_job(root / "v1", embedded_model, root / "cache", samples, SETTINGS)
    update(first)
    second = write_job(root / "v2", embedded_model, root / "cache", samples, SETTINGS, parent=first / RESULT_FOLDER)
    update(second)
    return root


def update(job: Path) -> None:
    """In a process of its own, as the learner does it."""
    done = subprocess.run(
        [sys.executable, "-m", "clawd.learner.train.update", str(job)], capture_output=True, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)


def outcome(folder: Path) -> Outcome:
    return Outcome.model_validate_json((folder / "outcome.json").read_text())


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_praise_raises_and_rejection_lowers(folder, version):
    metrics = outcome(folder / version).metrics
    assert metrics["effect/praised_logprob"] > 0.01
    assert metrics["effect/rejected_logprob"] < -0.01


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_first_step_begins_at_ratio_one(folder, version):
    assert outcome(folder / version).metrics["train/first_ratio"] == 1.0


def test_llama_cpp_serves_what_was_trained(folder):
    metrics = outcome(folder / "v1").metrics
    assert metrics["validate/mismatch_kl"] < 0.03
    assert metrics["validate/effect_kl"] > 1e-3


def test_the_second_update_starts_where_the_first_ended(folder):
    first, second = outcome(folder / "v1").metrics, outcome(folder / "v2").metrics
    assert second["validate/effect_kl"] > first["validate/effect_kl"]  # both against the base
    manifest = Manifest.model_validate_json((folder / "v2" / RESULT_FOLDER / MANIFEST_FILE).read_text())
    assert manifest.parent == RESULT_FOLDER
    assert manifest.seconds["load"] < 10  # the dense base was kept


def test_a_hint_moves_the_policy_towards_the_teacher(folder, samples):
    """Σ w KL-like gap at the support: ℓ_teacher - ℓ_cur, weighted as in the loss, shrinks from base to v1."""
    job, _ = read_job(folder / "v1")
    _, policy, _ = load(job, make_plan(job, samples))
    hinted = [sample for sample in samples if sample.hints]
    scored = score(policy, hinted, [[0]], SETTINGS)
    policy.load(folder / "v1" / RESULT_FOLDER)
    with torch.no_grad():
        inputs = loss_inputs(policy, scored, SETTINGS.loss)
    weights = support_weights(inputs.old_support, inputs.support)
    pull = weights * (inputs.teacher_support - inputs.old_support).clamp(-1, 1)
    assert float((pull * (inputs.cur_support - inputs.old_support)).sum()) > 0.0
    gap_before = (weights * (inputs.teacher_support - inputs.old_support) ** 2).sum()
    gap_after = (weights * (inputs.teacher_support - inputs.cur_support) ** 2).sum()
    assert float(gap_after) < float(gap_before)


def test_the_served_file_is_what_the_manifest_says(folder):
    result = folder / "v1" / RESULT_FOLDER
    manifest = Manifest.model_validate_json((result / MANIFEST_FILE).read_text())
    digest = hashlib.sha256((result / "adapter.gguf").read_bytes()).hexdigest()
    assert manifest.sha256["adapter.gguf"] == digest


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"learning_rate": 1e-12}, "without effect: every product of its factors is zero"),  # what float16 leaves of it
        # A bfloat16 base rounds otherwise beside any adapter, which alone measures as 1e-3.
        ({"learning_rate": 1e-6, "min_effect_kl": 0.02}, "without effect: KL to the base"),
    ],
)
def test_an_update_without_effect_is_refused(tmp_path, embedded_model, samples, folder, changed, reason):  # A6
    settings = SETTINGS.model_copy(update={"steps": 1, **changed})
    job = write_job(tmp_path / "job", embedded_model, folder / "cache", samples[:1], settings)
    done = subprocess.run(
        [sys.executable, "-m", "clawd.learner.train.update", str(job)], capture_output=True, check=False
    )
    assert done.returncode == 1, (done.stdout, done.stderr)
    refused = outcome(job)
    assert (refused.state, reason in (refused.reason or "")) == ("refused", True), refused
    assert not (job / RESULT_FOLDER).exists()
