"""adapter card: the lasting rules that an adapter's teacher is shown."""

from __future__ import annotations

import time

import click
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd.errors import UnknownName
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import CardLine

ADD = typer.Option(None, "--add", metavar="TEXT", help="Add a line; it stays until you remove it.")
REMOVE = typer.Option(None, "--remove", metavar="N", help="Remove line N; no hint brings it back.")
EDIT = typer.Option(False, "--edit", help="Open the card in your editor, a rule a line.")


def add_to(adapter: typer.Typer) -> None:
    """Register the verb with the family `clawd adapter`."""
    adapter.command("card")(card)


def card(name: str, add: str | None = ADD, remove: int | None = REMOVE, edit: bool = EDIT) -> None:
    """Show or change the preference card of the adapter NAME; updates read it when `learn.card` is on."""
    if sum((add is not None, remove is not None, edit)) > 1:
        raise typer.BadParameter("one of --add, --remove and --edit at a time")
    folder = DataFolder.default()
    folder.create()
    with Store(folder.database) as store:
        adapter = store.people.adapter_named(name)
        if adapter is None:
            raise UnknownName(f"There is no adapter {name!r}: `clawd adapter list` shows all.")
        if add is not None:
            store.cards.write(adapter.id, add)
        elif remove is not None:
            store.cards.remove(adapter.id, remove)
        elif edit:
            _edit(store, adapter.id)
        _show(name, store.cards.lines(adapter.id))


def _edit(store: Store, adapter_id: str) -> None:
    """The lines as the editor leaves them; None, of one that was left without saving, changes nothing."""
    before = "".join(f"{line.text}\n" for line in store.cards.lines(adapter_id))
    after = click.edit(before, extension=".txt")
    if after is not None:
        store.cards.replace(adapter_id, after.splitlines())


def _show(name: str, lines: list[CardLine]) -> None:
    if not lines:
        typer.echo(f"The card of {name} is empty: hints fill it, or `clawd adapter card {name} --add TEXT`.")
        return
    table = Table("", "rule", "from", "said last")
    for number, line in enumerate(lines, 1):
        day = time.strftime("%Y-%m-%d", time.localtime(line.confirmed_at))
        table.add_row(str(number), escape(line.text), line.source, day)
    Console().print(table)
