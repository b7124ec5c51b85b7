"""The checks that a new adapter must pass before its folder appears: whole, agreeing with the trainer, with effect."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from clawd.config import LearnSettings
from clawd.errors import UpdateFailed, UpdateRefused
from clawd.learner.job import Sample
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.policy import Policy
from clawd.model.lora import LoraBase, check_adapter_file

WINDOWS = 3  # samples that are compared
WINDOW_TOKENS = 96  # of each, the last ones
LAST = 32  # positions of each whose distributions are compared
PROBE_TIMEOUT_S = 300.0
LEAST_SERVED_EFFECT = 0.25  # of the trained effect; less means that the file is not what was trained


def validate(
    adapter: Path,
    base_file: Path,
    base: LoraBase,
    policy: Policy,
    samples: Sequence[Sample],
    settings: LearnSettings,
    courtesy: Courtesy,
) -> dict[str, float]:
    """The agreement and effect of the written adapter file, as metrics.

    Raises:
        AdapterRejected: the file isn't whole.
        UpdateRefused: llama.cpp's distributions differ too much from the trainer's, or not at all from the base's.
        UpdateFailed: llama.cpp could not be asked.
    """
    check_adapter_file(adapter, base)
    windows = pick_windows(samples)
    last = min(LAST, *(len(window) for window in windows))
    trainer = {"on": _distributions(policy, windows, last)}
    with policy.adapter_off():
        trainer["off"] = _distributions(policy, windows, last)
    with tempfile.TemporaryDirectory(dir=adapter.parent, prefix=".question-") as folder:
        question = Path(folder) / "question.npz"
        numbered = {f"window_{number}": np.array(window) for number, window in enumerate(windows)}
        counts = {"windows": len(windows), "last": last, "threads": torch.get_num_threads()}
        np.savez(question, **numbered, **trainer, **counts)  # type: ignore[arg-type]  # numpy types **kwds as one bool
        answer = ask_llama(question, base_file, adapter, courtesy)
    judge_answer(answer, settings)
    return {f"validate/{name}": value for name, value in answer.items()}


def pick_windows(samples: Sequence[Sample]) -> list[list[int]]:
    """The ends of a few samples, spread over the batch: a window's cost doesn't grow with the conversation."""
    step = max(1, len(samples) // WINDOWS)
    chosen = samples[::step][:WINDOWS]
    return [(sample.prompt_ids + sample.response_ids)[-WINDOW_TOKENS:] for sample in chosen]


@torch.no_grad()
def _distributions(policy: Policy, windows: Sequence[list[int]], last: int) -> NDArray[np.float32]:
    rows = [policy.hidden(torch.tensor([window], device=policy.device))[0, -last:].float() for window in windows]
    logprobs: NDArray[np.float32] = torch.log_softmax(torch.cat(rows) @ policy.head.T, dim=-1).cpu().numpy()
    return logprobs


def ask_llama(question: Path, base_file: Path, adapter: Path, courtesy: Courtesy) -> dict[str, float]:
    """Run `clawd.learner.train.served` on the question. Raises: UpdateFailed: it crashed, hung or refused."""
    command = [sys.executable, "-m", "clawd.learner.train.served", str(question), str(base_file), str(adapter)]
    try:
        answer: dict[str, float] = json.loads(courtesy.run(command, PROBE_TIMEOUT_S))
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise UpdateFailed(f"llama.cpp could not run the adapter (status {error.returncode}): {last_line}") from error
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise UpdateFailed(f"llama.cpp could not run the adapter: {error}") from error
    return answer


def judge_answer(answer: dict[str, float], settings: LearnSettings) -> None:
    """Raises: UpdateRefused: a figure is over or under its limit; NaN never passes."""
    if not answer["mismatch_kl"] <= settings.max_mismatch_kl:
        raise UpdateRefused(
            f"The served adapter differs from the trained one: KL {answer['mismatch_kl']:.4f} nats per token, "
            f"more than learn.max_mismatch_kl = {settings.max_mismatch_kl}."
        )
    # The trainer's own figure: with any adapter at all llama.cpp computes by another path, and rounds by 2e-3 nats.
    trained, served = answer["trained_effect_kl"], answer["effect_kl"]
    if not trained >= settings.min_effect_kl:
        raise UpdateRefused(
            f"The adapter is without effect: KL to the base {trained:.2e} nats per token, "
            f"less than learn.min_effect_kl = {settings.min_effect_kl}."
        )
    if not served >= LEAST_SERVED_EFFECT * trained:
        raise UpdateRefused(
            f"The served adapter is without the trained effect: KL to the base {served:.2e} nats per token "
            f"instead of {trained:.2e}."
        )
