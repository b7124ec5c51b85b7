"""Model names: `clawd`, `clawd@NAME`, `clawd@NAME:vN`, and the bare base model by its own name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from clawd.config import ModelSettings
from clawd.errors import ConfigError

FAMILY = "clawd"
_ADAPTER = re.compile(r"clawd(?:@(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})(?::v(?P<number>[1-9][0-9]{0,8}))?)?")


@dataclass(frozen=True)
class AdapterName:
    """`name` None: the caller's own adapter; `number` None: its active version."""

    name: str | None = None
    number: int | None = None


def parse(model: str) -> AdapterName | None:
    """What an adapter's model name asks for; None: it isn't one (the base's name, or a wrong one)."""
    match = _ADAPTER.fullmatch(model)
    if match is None:
        return None
    number = match["number"]
    return AdapterName(match["name"], int(number) if number else None)


def base_name(settings: ModelSettings, file: Path) -> str:
    """What the bare model in `file` is called.

    Raises:
        ConfigError: it would hide the adapters.
    """
    name = settings.name or file.stem
    if parse(name) is not None:
        raise ConfigError(f"The base model can't be called {name!r}, as adapters are: set model.name to another.")
    return name


def adapter_model(adapter: str, number: int | None = None) -> str:
    """The model name of an adapter, or of one version of it."""
    return f"{FAMILY}@{adapter}" + (f":v{number}" if number else "")
