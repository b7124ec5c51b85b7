"""`clawd bench ablate` from beginning to end: one batch, then variant by variant an update and its measures.

A variant that a guard refuses, or whose update fails, is a row that says so; the others go on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clawd.bench.ablate.batch import collect
from clawd.bench.ablate.figures import Measured, Result, base_row, goals, row
from clawd.bench.ablate.reading import Meter
from clawd.bench.ablate.records import Ended, Records
from clawd.bench.ablate.training import Trainer
from clawd.bench.ablate.variants import Variant, chosen
from clawd.bench.report import Report
from clawd.learner.process import renderer as render_with
from clawd.model.embedded import embedded_model_path
from clawd.model.fingerprint import fingerprint
from clawd.model.prompt import PromptRenderer
from clawd.model.vocab import Vocabulary

Say = Callable[[str], None]


def run(
    model: Path | None = None,
    *,
    quick: bool = False,
    command: str = "clawd bench ablate",
    say: Say = lambda _: None,
    variants: Sequence[Variant] | None = None,
    out: Path | None = None,
) -> Report:
    """Measure with `model`, by default the embedded one. `quick`: a few variants; `variants`: others than the table's.

    `out`: a folder for what is finished, which isn't run again.

    Raises:
        BenchFailed: no batch could be made with this model, or a version not be read.
    """
    path = (model or embedded_model_path()).resolve()
    asked = chosen(quick) if variants is None else variants
    kept_in = out.resolve() if out else None
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder, Vocabulary.open(path) as vocabulary:
        root = Path(folder)
        cache = (kept_in or root) / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        identity = fingerprint(path, cache)
        say("The batch: 16 answers of the served model")
        records = Records(kept_in, identity)
        lessons = records.batch(lambda: collect(path))
        trainer = Trainer(root, cache, path, identity, lessons, render_with(vocabulary))
        say("The base on held-out replies and neutral prompts")
        with Meter(path, identity, cache, PromptRenderer.of(vocabulary)) as meter:
            base = meter.answers(None)
            bench = _Bench(trainer, meter, records, say)
            results = [bench.result(variant) for variant in asked]
    rows = [row(result, base) for result in results]
    return Report("ablate", command, [*rows, base_row(base)], goals(results))


@dataclass(frozen=True)
class _Bench:
    trainer: Trainer
    meter: Meter
    records: Records
    say: Say

    def result(self, variant: Variant) -> Result:
        """The variant under all its seeds."""
        ended = []
        for seed in range(variant.seeds):
            ended.append(self.records.ended(variant, seed, partial(self._run, variant, seed)))
            self.say(f"{variant.name}, seed {seed}: {_told(ended[-1])}")
        return Result(
            variant,
            measured=[one.measured for one in ended if one.measured is not None],
            refused=[one.refused for one in ended if one.refused is not None],
        )

    def _run(self, variant: Variant, seed: int) -> Ended:
        trained = self.trainer.train(variant, seed)
        try:
            if trained.folder is None or trained.kl_old is None:
                return Ended(None, trained.reason or "no reason was given", trained.failed)
            gain, neutral_kl = self.meter.distributions(trained.folder)
            spoken = self.meter.answers(trained.folder)
            return Ended(Measured(gain.nats, neutral_kl, trained.kl_old, spoken, trained.seconds), None)
        finally:
            self.trainer.clear()


def _told(ended: Ended) -> str:
    found = ended.measured
    if found is None:
        return f"refused: {ended.refused}"
    return f"gain {found.gain:.3f}, neutral KL {found.neutral_kl:.4f}, {found.seconds} s"
