"""`clawd learn report`: is it getting better? From the owner's real sessions, version by version."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clawd.cli.opening import open_store
from clawd.store.progress import VersionProgress, verdict, wilson
from clawd.store.records import DEFAULT_USER


def add_to(learn: typer.Typer) -> None:
    learn.command("report")(report)


def report(
    name: Annotated[str | None, typer.Argument(help="An adapter; default: the user default's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Per version: how often its first answer of a session was taken well, corrections, and its drift."""
    with open_store() as store:
        adapter = store.people.adapter(name) if name else store.people.named(DEFAULT_USER).adapter
        found = store.progress.versions(adapter.id)
    if as_json:
        typer.echo(
            json.dumps({"adapter": adapter.name, "versions": [_told(one) for one in found], "verdict": verdict(found)})
        )
        return
    _show(adapter.name, found)


def _told(one: VersionProgress) -> dict[str, object]:
    low, high = wilson(one.satisfied, one.judged)
    rate = one.satisfied / one.judged if one.judged else None
    return {
        **asdict(one),
        "rate": rate,
        "low": low,
        "high": high,
        "corrections_per_session": one.corrections_per_session,
    }


def _show(name: str, found: list[VersionProgress]) -> None:
    table = Table(title=f"{name}: first answers of sessions, by who gave them", title_justify="left")
    for column in ("version", "sessions", "judged", "taken well", "95 % between", "corrections", "neutral KL"):
        table.add_column(column, justify="left" if column == "version" else "right")
    for one in found:
        low, high = wilson(one.satisfied, one.judged)
        table.add_row(
            one.name,
            str(one.sessions),
            str(one.judged),
            f"{one.satisfied / one.judged:.0%}" if one.judged else "–",
            f"{low:.0%} and {high:.0%}" if one.judged else "–",
            "–" if one.corrections_per_session is None else f"{one.corrections_per_session:.2f} a session",
            "–" if one.neutral_kl is None else f"{one.neutral_kl:.3f}",
        )
    console = Console()
    console.print(table)
    console.print(verdict(found), highlight=False)
