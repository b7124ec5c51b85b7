"""`clawd bench ablate` from beginning to end: one batch, then variant by variant an update and its measures.

A variant that a guard refuses, or whose update fails, is a row that says so; the others go on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from clawd.bench.ablate.batch import collect
from clawd.bench.ablate.figures import Measured, Result, base_row, goals, row
from clawd.bench.ablate.reading import Meter
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
) -> Report:
    """Measure with `model`, by default the embedded one. `quick`: a few variants; `variants`: others than the table's.

    Raises:
        BenchFailed: no batch could be made with this model, or a version not be read.
    """
    path = (model or embedded_model_path()).resolve()
    asked = chosen(quick) if variants is None else variants
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder, Vocabulary.open(path) as vocabulary:
        root = Path(folder)
        (root / "cache").mkdir()
        identity = fingerprint(path, root / "cache")
        say("The batch: 16 answers of the served model")
        trainer = Trainer(root, path, identity, collect(path), render_with(vocabulary))
        say("The base on held-out replies and neutral prompts")
        with Meter(path, identity, trainer.cache, PromptRenderer.of(vocabulary)) as meter:
            base = meter.answers(None)
            results = [_measure(variant, trainer, meter, say) for variant in asked]
    rows = [row(result, base) for result in results]
    return Report("ablate", command, [*rows, base_row(base)], goals(results))


def _measure(variant: Variant, trainer: Trainer, meter: Meter, say: Say) -> Result:
    measured: list[Measured] = []
    refused: list[str] = []
    for seed in range(variant.seeds):
        trained = trainer.train(variant, seed)
        if trained.folder is None or trained.kl_old is None:
            refused.append(trained.reason or "no reason was given")
            say(f"{variant.name}, seed {seed}: {refused[-1]}")
        else:
            gain, neutral_kl = meter.distributions(trained.folder)
            spoken = meter.answers(trained.folder)
            measured.append(Measured(gain.nats, neutral_kl, trained.kl_old, spoken, trained.seconds))
            say(
                f"{variant.name}, seed {seed}: gain {gain.nats:.3f}, neutral KL {neutral_kl:.4f}, "
                f"KL to old {trained.kl_old:.4f}, {spoken.tokens:.1f} tokens, {spoken.cut:.0%} cut, {trained.seconds} s"
            )
        trainer.clear()
    return Result(variant, measured, refused)
