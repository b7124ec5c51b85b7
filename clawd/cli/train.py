"""train, why: what is learnt next, and what a version was learnt from."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd.cli.adapters import find_version
from clawd.cli.memory_view import expected_memory, show_memory
from clawd.cli.opening import open_folder, open_store, served_model, settings_of
from clawd.daemon import address, record
from clawd.doorbell import ring
from clawd.errors import ClawdError, NotRunning, UpdateRefused
from clawd.model import names
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import DEFAULT_USER, Adapter, Update
from clawd.store.story import Lesson
from clawd.store.updates import BLOCKED, UNBLOCKED

POLL_S = 0.1
BEGINS_WITHIN_S = 15.0
"""The learner looks every second; one that runs an update of another adapter looks again when that has ended."""
EXCERPT = 60

AdapterName = Annotated[str | None, typer.Option("--adapter", help="Which adapter; default: the user default's.")]


def add_to(app: typer.Typer) -> None:
    app.command()(train)
    app.command()(why)


def train(
    now: Annotated[bool, typer.Option("--now", help="Begin an update with what waits, whatever the schedule.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the next update would learn from; write nothing.")
    ] = False,
    adapter: AdapterName = None,
    wait: Annotated[bool, typer.Option("--wait", help="With --now: return when the update has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: print one JSON object.")] = False,
) -> None:
    """Begin an update by hand, or show what one would learn."""
    if now == dry_run:
        raise typer.BadParameter("say either --now or --dry-run")
    folder = open_folder()
    with open_store(folder) as store:
        chosen = store.people.adapter(adapter) if adapter else store.people.named(DEFAULT_USER).adapter
        if now:
            _train_now(folder, store, chosen, wait)
        else:
            facts = _dry_run(folder, store, chosen)
            typer.echo(json.dumps(facts, ensure_ascii=False)) if as_json else _show_dry_run(facts)


# -- now


def _train_now(folder: DataFolder, store: Store, adapter: Adapter, wait: bool) -> None:
    if record.running(folder) is None:
        raise NotRunning("No daemon runs that could train: start one with `clawd start`.")
    settings = settings_of(folder).learn
    if not settings.enabled:
        raise UpdateRefused("Learning is switched off (learn.enabled).")
    waiting = store.signals.waiting(adapter.id, served_model(folder)[1])
    if waiting == 0:
        raise UpdateRefused(f"{adapter.name!r} has no sample that waits: there is nothing to learn from.")
    newest = store.updates.newest(adapter.id)
    store.lifecycle.ask_update(adapter.id)
    ring(folder.learner_bell)
    update = _begun(store, adapter, newest)
    if update is None:
        _tell_delay(store, adapter)
        raise typer.Exit(1)
    samples = len(store.signals.of_update(update.id))
    typer.echo(f"update {update.number} of {adapter.name} has begun with {samples} of {waiting} samples")
    if wait:
        _wait_for_end(folder, store, update)


def _begun(store: Store, adapter: Adapter, before: Update | None) -> Update | None:
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while time.monotonic() < deadline:
        newest = store.updates.newest(adapter.id)
        if newest is not None and (before is None or newest.id != before.id):
            return newest
        if _blocked(store, adapter):
            return None
        time.sleep(POLL_S)
    return None


def _tell_delay(store: Store, adapter: Adapter) -> None:
    problem = _blocked(store, adapter)
    running = next((update for update in store.updates.running()), None)
    if problem is None and running is not None:
        problem = "the update that runs now to end"
    typer.echo(f"the update has not begun yet; it waits for: {problem or 'the learner (see its log)'}", err=True)


def _blocked(store: Store, adapter: Adapter) -> str | None:
    """What the learner says an adapter's update waits for, if that would hold up one that is asked for."""
    told = store.newest_event((BLOCKED, UNBLOCKED), adapter.id)
    if told is None or told["kind"] != BLOCKED:
        return None
    reason = str(json.loads(told["detail"])["reason"])
    return None if "(learn.when" in reason else reason


def _wait_for_end(folder: DataFolder, store: Store, update: Update) -> None:
    while (found := store.updates.get(update.id)).state in ("running", "staged"):
        if record.running(folder) is None:
            raise NotRunning("The daemon has ended; what was not finished is trained when it is started again.")
        time.sleep(POLL_S)
    if found.state != "active":
        raise UpdateRefused(f"update {update.number} was {found.state}: {found.reason}")
    typer.echo(f"version {update.number} answers now")


# -- dry run


def _dry_run(folder: DataFolder, store: Store, adapter: Adapter) -> dict[str, Any]:
    learn = settings_of(folder).learn
    base = served_model(folder)[1]
    lessons = store.story.next_batch(adapter.id, base, learn.samples_per_update)
    active = store.updates.active_version(adapter.id)
    too_long = [one for one in lessons if one.prompt_tokens + one.response_tokens > learn.max_sample_tokens]
    return {
        "adapter": adapter.name,
        "from": names.adapter_model(adapter.name, active.number) if active else "the bare base",
        "samples": len(lessons),
        "samples_waiting": store.signals.waiting(adapter.id, base),
        "samples_needed": learn.samples_per_update,
        "rewards": _rewards(lessons),
        "hints": sum(len(one.hints) for one in lessons),
        "prompt_tokens": sum(one.prompt_tokens for one in lessons),
        "response_tokens": sum(one.response_tokens for one in lessons),
        "memory": expected_memory(served_model(folder)[0], lessons, learn),
        "too_long": [one.turn_id for one in too_long],
        "waits_for": _waits_for(folder, store, adapter, len(lessons), learn.samples_per_update),
        "lessons": [asdict(one) for one in lessons],
    }


def _rewards(lessons: Sequence[Lesson]) -> dict[str, int]:
    counts = Counter("none" if one.reward is None else f"{one.reward:+d}" for one in lessons)
    return {reward: counts[reward] for reward in ("+1", "+0", "-1", "none") if counts[reward]}


def _waits_for(folder: DataFolder, store: Store, adapter: Adapter, waiting: int, needed: int) -> str | None:
    """As the server says it while one runs; else as far as the store knows. None: nothing known."""
    daemon = record.running(folder)
    if daemon is not None:
        try:
            told = address.get_object(daemon.host, daemon.port, "/clawd/v1/status", 5.0, folder.owner_key())
            return next(str(one["waits_for"]) for one in told["adapters"] if one["name"] == adapter.name)
        except (ClawdError, StopIteration, LookupError):
            return "the server, which doesn't answer"
    halt = store.lifecycle.halted(adapter.id)
    if halt is not None:
        return f"a look at it, then `clawd adapter resume {adapter.name}`: {halt.reason}"
    missing = f"{needed - waiting} more judged turns with a signal, and " if waiting < needed else ""
    return f"{missing}a daemon (`clawd start`)"


def _show_dry_run(facts: dict[str, Any]) -> None:
    console = Console()
    console.print(
        f"[bold]{escape(facts['adapter'])}[/]: the next update would go on from {escape(facts['from'])} and learn from "
        f"{facts['samples']} of {facts['samples_waiting']} waiting samples ({facts['samples_needed']} begin one): "
        f"rewards {', '.join(f'{count}× {reward}' for reward, count in facts['rewards'].items()) or 'none'}; "
        f"{facts['hints']} hints; {facts['prompt_tokens']} prompt and {facts['response_tokens']} response tokens.",
        soft_wrap=True,
    )
    if facts["too_long"]:
        console.print(f"{len(facts['too_long'])} of them are longer than learn.max_sample_tokens.", soft_wrap=True)
    console.print(f"It waits for: {escape(str(facts['waits_for']))}", soft_wrap=True)
    show_memory(console, facts["memory"])
    table = Table("turn", "user", "reward", "asked", "answered", "hints")
    for one in facts["lessons"]:
        reward = "none" if one["reward"] is None else f"{one['reward']:+d}"
        texts = (_excerpt(one["asked"]), _excerpt(one["answered"]), _excerpt("; ".join(one["hints"])))
        table.add_row(*map(escape, (one["turn_id"], one["user"], reward, *texts)))
    if facts["lessons"]:
        console.print(table)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


# -- why


def why(
    version: Annotated[str, typer.Argument(metavar="NAME:vN", help="A version, served or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the turns, votes and hints that made a version."""
    with open_store() as store:
        adapter, found = find_version(store, version)
        update = store.updates.get(found.update_id)
        lessons = store.story.of_update(update.id)
        parent = store.updates.version(found.parent_id).number if found.parent_id else None
        facts = {
            "version": names.adapter_model(adapter.name, found.number),
            "state": found.state,
            "reason": found.reason,
            "origin": update.origin,
            "from": store.updates.settings(update.id).get("from") if update.origin != "training" else None,
            "parent": parent,
            "metrics": store.updates.metrics(update.id),
            "lessons": [asdict(lesson) for lesson in lessons],
        }
    typer.echo(json.dumps(facts, ensure_ascii=False)) if as_json else _show_why(facts)


def _show_why(facts: dict[str, Any]) -> None:
    console = Console()
    if facts["origin"] != "training":
        how = f"an {facts['origin']} of {facts['from']}; it was not trained here"
    else:
        start = f"version {facts['parent']}" if facts["parent"] else "fresh weights"
        how = f"trained from {start} on {len(facts['lessons'])} samples"
    reason = f" ({facts['reason']})" if facts["reason"] else ""
    console.print(
        f"[bold]{escape(facts['version'])}[/], {facts['state']}{escape(reason)}: {escape(how)}", soft_wrap=True
    )
    for one in facts["lessons"]:
        console.print(escape(_lesson_text(one)), soft_wrap=True, highlight=False)


def _lesson_text(one: dict[str, Any]) -> str:
    reward = "no score" if one["reward"] is None else f"{one['reward']:+d}"
    left_out = f", left out: {one['reason']}" if one["state"] == "quarantined" else ""
    lines = [
        f"\nturn {one['turn_id']} of {one['user']}, {reward}{left_out}",
        f"  asked:    {' '.join(one['asked'].split())}",
        f"  answered: {' '.join(one['answered'].split())}",
        f"  followed: {' '.join(one['followed'].split()) or '(nothing)'}",
    ]
    lines += [f"  vote:     {_vote(vote)}" for vote in one["votes"]]
    lines += [f"  hint:     {hint}" for hint in one["hints"]]
    return "\n".join(lines)


def _vote(vote: dict[str, Any]) -> str:
    score = "no vote" if vote["score"] is None else f"{vote['score']:+d}"
    return f"{score} by {vote['judge']}: {vote['reason']}"
