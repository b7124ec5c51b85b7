"""One variant's updates: the job folder of the contract, the learner's own backend and child process, the result."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clawd.bench.ablate.batch import Lesson, card_of, samples_of
from clawd.bench.ablate.variants import Variant
from clawd.config import LearnSettings
from clawd.learner.backends.local import LocalBackend
from clawd.learner.hints import Render
from clawd.learner.job import JOB_FILE, MANIFEST_FILE, SAMPLES_FILE, Job, Manifest
from clawd.learner.jobs import read_outcome, result_of
from clawd.learner.neutral import neutral_prompts

POLL_S = 0.2


@dataclass(frozen=True)
class Trained:
    """What became of a variant under one seed."""

    folder: Path | None  # of the last version; none: it was refused
    reason: str | None  # why it was refused, or failed
    kl_old: float | None  # after the last update, at its samples, nats per token
    seconds: float  # of all updates, less those of loading
    failed: bool = False  # not refused: it could not be computed


class Trainer:
    """Trains variants on one batch; all of it happens under `root`, which goes afterwards, and `cache`."""

    def __init__(
        self, root: Path, cache: Path, model: Path, fingerprint: str, lessons: Sequence[Lesson], render: Render
    ) -> None:
        self._root = root
        self.cache = cache
        self._model = model
        self._fingerprint = fingerprint
        self._lessons = lessons
        self._render = render

    def train(self, variant: Variant, seed: int) -> Trained:
        """All updates of the variant in a row; the first one that is refused ends them."""
        settings = variant.settings(seed)
        parent, kl_old, seconds = None, None, 0.0
        for number in range(1, variant.updates + 1):
            folder = self._root / f"job-{seed}-{number}"
            self._write(folder, settings, number, parent)
            ended = self._run(folder, settings)
            outcome = read_outcome(folder)
            if outcome is None or outcome.state != "staged":
                reason = outcome.reason if outcome else f"the update's process ended without an outcome: {ended}"
                return Trained(None, reason, None, seconds, failed=outcome is None or outcome.state == "failed")
            parent, kl_old = result_of(folder), outcome.metrics["drift/kl_old"]
            phases = Manifest.model_validate_json((parent / MANIFEST_FILE).read_text()).seconds
            seconds += sum(value for name, value in phases.items() if name != "load")
        return Trained(parent, None, kl_old, round(seconds, 1))

    def clear(self) -> None:
        """Remove the versions: each takes up to 100 MB."""
        for folder in self._root.glob("job-*"):
            shutil.rmtree(folder)

    def _write(self, folder: Path, settings: LearnSettings, number: int, parent: Path | None) -> None:
        card = card_of(self._lessons, settings.card_lines) if settings.card else []
        samples = samples_of(self._lessons, self._render, card)
        job = Job(
            update_id=f"ablate-{number}",
            adapter_id="ablate",
            adapter_name="ablate",
            number=number,
            parent=parent,
            base=self._model,
            base_fingerprint=self._fingerprint,
            cache=self.cache,
            settings=settings,
            neutral=self._neutral(settings, number),
        )
        folder.mkdir(parents=True)
        (folder / SAMPLES_FILE).write_text("".join(f"{sample.model_dump_json()}\n" for sample in samples))
        (folder / JOB_FILE).write_text(job.model_dump_json())

    def _neutral(self, settings: LearnSettings, number: int) -> list[list[int]]:
        if settings.loss.neutral_weight == 0:
            return []
        return neutral_prompts(settings.loss.neutral_prompts, number, lambda messages: self._render(messages, None, {}))

    def _run(self, folder: Path, settings: LearnSettings) -> str:
        """How the child ended."""
        running = LocalBackend(self._root / "update.log", settings).start(folder)
        deadline = time.monotonic() + settings.timeout_s
        try:
            while (ended := running.poll()) is None:
                if time.monotonic() > deadline:
                    return f"it took longer than learn.timeout_s = {settings.timeout_s:g}"
                time.sleep(POLL_S)
            return ended
        finally:
            running.cancel()
