"""adapter merge: a version worked into its base, as a model file of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from clawd import lifeline
from clawd.cli.adapters import adapter_name, existing_version, refuse_to_overwrite
from clawd.cli.opening import open_folder, open_store, served_model
from clawd.errors import AdapterRejected, ClawdError, StoreError
from clawd.learner.job import ADAPTER_GGUF
from clawd.model import names

LIMIT_KL = 0.02
"""Nats per token. A matrix in float16 beside activations that llama.cpp rounds differently makes less than 0.01."""
TIMEOUT_S = 600.0


def add_to(group: typer.Typer) -> None:
    group.command()(merge)


def merge(
    name: Annotated[str, typer.Argument(metavar="NAME[:vN]", help="A version; without :vN the active one.")],
    file: Annotated[Path, typer.Argument(help="The GGUF file to write.")],
) -> None:
    """Write a model file that answers as the base does with the adapter, for programs that load no adapters.

    The changed matrices are float16, so that it is larger than a base of fewer bits.
    """
    from clawd.model.lora import read_lora_base  # noqa: PLC0415  loads numpy and gguf
    from clawd.model.merge import merge as merge_files  # noqa: PLC0415

    folder = open_folder()
    model, fingerprint = served_model(folder)
    with open_store(folder) as store:
        version = existing_version(store, name)
    refuse_to_overwrite(file)
    adapter = version.folder / ADAPTER_GGUF
    aside = file.with_name(f".{file.name}.part")
    called = names.adapter_model(adapter_name(name.partition(":")[0]), version.number)
    try:
        merge_files(model, read_lora_base(model, fingerprint), adapter, aside, called)
        answer = _check(model, adapter, aside)
        aside.rename(file)
    except OSError as error:
        raise StoreError(f"{file} can't be written: {error.strerror}.") from None
    finally:
        aside.unlink(missing_ok=True)
    typer.echo(
        f"{file}: KL to {model.name} with {called} is {answer['mismatch_kl']:.4f} nats per token; "
        f"the adapter's own effect is {answer['effect_kl']:.4f}"
    )


def _check(model: Path, adapter: Path, merged: Path) -> dict[str, float]:
    """Raises AdapterRejected: the merged file says something else. ClawdError: llama.cpp can't be asked."""
    command = [sys.executable, "-m", "clawd.learner.merge_check", *map(str, (model, adapter, merged))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=lifeline.environment()
        )
        answer: dict[str, float] = json.loads(done.stdout)
    except subprocess.CalledProcessError as error:
        last_line = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClawdError(f"llama.cpp could not run the merged file: {last_line}") from None
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise ClawdError(f"llama.cpp could not run the merged file: {error}") from None
    if not answer["mismatch_kl"] <= LIMIT_KL:
        raise AdapterRejected(
            f"The merged file differs from the base with the adapter by {answer['mismatch_kl']:.4f} nats per token, "
            f"more than {LIMIT_KL}: it was not kept."
        )
    return answer
