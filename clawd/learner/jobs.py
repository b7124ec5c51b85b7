"""Job folders: written before an update, read after it. `clawd.learner.job` says what lies where."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from clawd.config import LearnSettings
from clawd.errors import UpdateFailed
from clawd.learner.hints import Render, hint_prompts
from clawd.learner.job import (
    ADAPTER_GGUF,
    JOB_FILE,
    MANIFEST_FILE,
    OPTIMIZER_FILE,
    OUTCOME_FILE,
    PEFT_CONFIG,
    PEFT_WEIGHTS,
    RESULT_FOLDER,
    SAMPLES_FILE,
    Job,
    Manifest,
    Outcome,
    Sample,
)
from clawd.learner.neutral import neutral_prompts
from clawd.learner.probes import probes
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Update, Version

NOT_RENDERED = "its prompt can't be rendered again as it was served, and it has no reward"
NO_CARD = "it has neither reward nor hint, and the preference card is empty now"
RESULT_FILES = (ADAPTER_GGUF, PEFT_WEIGHTS, PEFT_CONFIG, OPTIMIZER_FILE)


@dataclass(frozen=True)
class ServedModel:
    """The base that answers and is trained."""

    path: Path
    fingerprint: str
    name: str  # in the API


def folder_of(data: DataFolder, update_id: str) -> Path:
    return data.jobs / update_id


def write(
    data: DataFolder,
    store: Store,
    update: Update,
    parent: Version | None,
    served: ServedModel,
    settings: LearnSettings,
    render: Render,
) -> tuple[Path, dict[str, str]]:
    """Make the job folder of a claimed update; the folder, and which samples were left out and why.

    Raises:
        UpdateFailed: no sample is left.
        OSError: the folder can't be written.
    """
    folder = folder_of(data, update.id)
    folder.mkdir(mode=0o700, parents=True)
    names = {adapter.id: adapter.name for adapter in store.people.adapters()}
    job = Job(
        update_id=update.id,
        adapter_id=update.adapter_id,
        adapter_name=names[update.adapter_id],
        number=update.number,
        parent=parent.folder if parent else None,
        base=served.path,
        base_fingerprint=served.fingerprint,
        cache=data.cache,
        settings=settings,
        neutral=_neutral(settings, update, render),
        probes=probes(store, update, served.fingerprint, settings.gate, lambda messages: render(messages, None, {})),
    )
    card = _card(store, update, settings) if settings.card else []
    samples, left_out = _samples(store, update, render, card)
    if not samples:
        raise UpdateFailed(f"none of its samples can be used: {'; '.join(sorted(set(left_out.values())))}")
    (folder / SAMPLES_FILE).write_text("".join(f"{sample.model_dump_json()}\n" for sample in samples))
    (folder / JOB_FILE).write_text(job.model_dump_json(indent=1))
    return folder, left_out


def _neutral(settings: LearnSettings, update: Update, render: Render) -> list[list[int]]:
    if settings.loss.neutral_weight == 0:
        return []
    return neutral_prompts(settings.loss.neutral_prompts, update.number, lambda messages: render(messages, None, {}))


def _card(store: Store, update: Update, settings: LearnSettings) -> list[str]:
    """The adapter's card, with the hints of this update's samples taken up.

    Taken up here and not when they are given: a card is what its adapter is taught from, and is taught from now.
    """
    turns = [stored.turn_id for stored in store.signals.of_update(update.id)]
    store.cards.learn(update.adapter_id, turns, settings.card_lines)
    return [line.text for line in store.cards.lines(update.adapter_id)]


def _samples(store: Store, update: Update, render: Render, card: Sequence[str]) -> tuple[list[Sample], dict[str, str]]:
    samples: list[Sample] = []
    left_out: dict[str, str] = {}
    for stored in store.signals.of_update(update.id):
        turn = store.turns.get(stored.turn_id)
        given = store.signals.hints(turn.id)
        hints = hint_prompts(turn, given, render, card)
        if not hints and not stored.reward:
            told = given or card
            left_out[stored.id] = NOT_RENDERED if told else NO_CARD
            continue
        try:
            samples.append(
                Sample(
                    sample_id=stored.id,
                    turn_id=turn.id,
                    prompt_ids=turn.prompt_ids,
                    response_ids=turn.response_ids,
                    rollout_logprobs=turn.logprobs,
                    rollout_version=turn.version_id,
                    reward=stored.reward,
                    hints=hints,
                    truncated=turn.finish_reason == "length",
                )
            )
        except ValidationError as error:
            left_out[stored.id] = error.errors(include_url=False)[0]["msg"]
    return samples, left_out


def read_outcome(folder: Path) -> Outcome | None:
    """How the update ended; none: it left no readable word."""
    try:
        return Outcome.model_validate_json((folder / OUTCOME_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValidationError):
        return None


def read_result(folder: Path, update: Update) -> Manifest:
    """The manifest of a result folder, after a check that all files are there, as written, and of this update.

    Raises:
        UpdateFailed: they are not.
    """
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (FileNotFoundError, ValidationError) as error:
        raise UpdateFailed(f"the result has no valid manifest: {_first_line(error)}") from None
    if manifest.update_id != update.id or manifest.number != update.number:
        raise UpdateFailed(f"the result is of update {manifest.update_id}, version {manifest.number}")
    for name in RESULT_FILES:
        path = folder / name
        if not path.is_file():
            raise UpdateFailed(f"the result lacks {name}")
        if file_sha256(path) != manifest.sha256.get(name):
            raise UpdateFailed(f"{name} is not as its manifest says")
    return manifest


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def result_of(folder: Path) -> Path:
    return folder / RESULT_FOLDER


def remove_ended(data: DataFolder, keep: Iterable[str], newest: int) -> int:
    """Remove job folders except those named in `keep` and the `newest` ones (ids sort by time); how many."""
    kept = set(keep)
    ended = sorted(path for path in data.jobs.iterdir() if path.is_dir() and path.name not in kept)
    gone = ended[: max(0, len(ended) - newest)]
    for path in gone:
        shutil.rmtree(path)
    return len(gone)


def claim_settings(settings: LearnSettings) -> dict[str, object]:
    """The resolved settings as the store keeps them with the update."""
    values: dict[str, object] = json.loads(settings.model_dump_json())
    return values
