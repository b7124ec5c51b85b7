"""user add, user list."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from clawd.paths import DataFolder
from clawd.store import Store

users = typer.Typer(help="Who may talk to clawd; each user has an adapter of their own.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    app.add_typer(users, name="user")


@users.command()
def add(name: str) -> None:
    """Add a user and print the API key. It is told this once: only its hash is kept."""
    with _store() as store:
        _, key = store.people.add(name)
    typer.echo(key)


@users.command("list")
def list_users() -> None:
    """List the users, their adapters, and who has a key."""
    with _store() as store:
        everyone = store.people.all()
    table = Table("user", "adapter", "key")
    for user in everyone:
        table.add_row(user.name, user.adapter.name, "yes" if user.has_key else "none: without keys only")
    Console().print(table)


def _store() -> Store:
    folder = DataFolder.default()
    folder.create()
    return Store(folder.database)
