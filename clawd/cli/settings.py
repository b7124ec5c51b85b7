"""config: every setting with its resolved value, its default and its sentence, read off the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer
from pydantic import BaseModel, SecretStr
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clawd import config
from clawd.cli.life import TAKES_SETTINGS
from clawd.paths import DataFolder

Value = str | int | float | bool | list[str] | None


@dataclass(frozen=True)
class Setting:
    key: str
    value: Value  # secrets are masked
    default: Value
    is_set: bool  # by a flag, the environment or the TOML file
    environment: str
    sentence: str


def add_to(app: typer.Typer) -> None:
    app.command("config", context_settings=TAKES_SETTINGS)(show)


def show(
    context: typer.Context,
    as_toml: bool = typer.Option(False, "--toml", help="Print a TOML file that says the same."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON list."),
) -> None:
    """List every setting: its value now, its default, what it does. Takes the same flags as `clawd start`."""
    folder = DataFolder.default()
    settings = list(describe(config.load(folder, context.args)))
    if as_json:
        typer.echo(json.dumps([asdict(setting) for setting in settings], ensure_ascii=False, indent=1))
    elif as_toml:
        typer.echo(to_toml(settings), nl=False)
    else:
        _print_table(settings, folder)


def describe(section: BaseModel, before: str = "") -> Iterator[Setting]:
    """All settings below `section`, in the order of the schema."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        key = f"{before}{name}"
        if isinstance(value, BaseModel):
            yield from describe(value, f"{key}.")
        else:
            yield Setting(
                key=key,
                value=_plain(value),
                default=_plain(field.default),
                is_set=name in section.model_fields_set,
                environment=config.ENV_PREFIX + key.upper().replace(".", "__"),
                sentence=field.description or "",
            )


def to_toml(settings: Sequence[Setting]) -> str:
    """A TOML file. What has its default is commented out, so that a later version's better default takes effect."""
    lines: list[str] = []
    section = None
    for setting in settings:
        table, _, name = setting.key.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"] if lines else [f"[{table}]"]
            section = table
        secret = setting.is_set and setting.value == MASK
        comment = "" if setting.is_set and not secret else "# "
        lines += [f"# {setting.sentence}", f"{comment}{name} = {_toml_value(setting.value)}"]
    return "\n".join(lines) + "\n"


MASK = str(SecretStr("any"))


def _plain(value: Any) -> Value:
    if isinstance(value, tuple):
        return [str(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _toml_value(value: Value) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(value)  # a JSON string, or a list of them, is one in TOML too


def _print_table(settings: Sequence[Setting], folder: DataFolder) -> None:
    console = Console()
    table = Table("setting", "value", "default", "what it does", show_lines=False)
    for setting in settings:
        value = escape(_shown(setting.value))
        table.add_row(
            setting.key,
            f"[bold]{value}[/]" if setting.is_set else value,
            escape(_shown(setting.default)),
            escape(setting.sentence),
        )
    console.print(table)
    console.print(
        f"Strongest first: flags (`--server.port 31000`), environment (`CLAWD_SERVER__PORT=31000`), "
        f"{escape(str(folder.config_file))}, defaults.",
        soft_wrap=True,
    )


def _shown(value: Value) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
