"""user add, user list, user set."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from clawd.cli.opening import open_store

users = typer.Typer(help="Who may talk to clawd, and which adapter is theirs.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    app.add_typer(users, name="user")


@users.command()
def add(
    name: str,
    adapter: Annotated[str | None, typer.Option(help="Their adapter; default: a new one of the user's name.")] = None,
) -> None:
    """Add a user and print the API key. It is told this once: only its hash is kept."""
    with open_store() as store:
        _, key = store.people.add(name, adapter)
    typer.echo(key)


@users.command("set")
def set_user(
    name: str, adapter: Annotated[str, typer.Option(help="The adapter that `clawd` means for them from now on.")]
) -> None:
    """Give a user another adapter. Several users may have the same: then it learns from all of them."""
    with open_store() as store:
        store.people.set_adapter(store.people.named(name), store.people.adapter(adapter))


@users.command("list")
def list_users() -> None:
    """List the users, their adapters, and who has a key."""
    with open_store() as store:
        everyone = [(user, store.people.adapters_of(user)[1:]) for user in store.people.all()]
    table = Table("user", "adapter", "may also use", "key")
    for user, further in everyone:
        others = ", ".join(adapter.name for adapter in further)
        table.add_row(user.name, user.adapter.name, others, "yes" if user.has_key else "none: who sends none")
    Console().print(table)
