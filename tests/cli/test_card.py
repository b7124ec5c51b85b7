"""adapter card: shown, added to, removed from, edited."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from clawd.cli import card
from clawd.errors import UnknownName
from clawd.paths import DataFolder
from clawd.store import Store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path))
    return DataFolder.default()


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.callback()(lambda: None)
    card.add_to(app)
    result = CliRunner().invoke(app, ["card", *arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def lines(folder: DataFolder) -> list[str]:
    with Store(folder.database) as store:
        adapter = store.people.adapter_named("default")
        assert adapter is not None
        return [line.text for line in store.cards.lines(adapter.id)]


def test_add_show_remove(folder: DataFolder) -> None:
    run("default", "--add", "Be brief.")
    shown = run("default", "--add", "Metric units.")
    assert shown.index("Be brief.") < shown.index("Metric units.")
    assert run("default") == shown
    run("default", "--remove", "1")
    assert lines(folder) == ["Metric units."]


def test_edit_opens_the_editor_on_the_lines(
    folder: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("default", "--add", "Be brief.")
    script = tmp_path / "editor.py"
    script.write_text("import sys; file = open(sys.argv[1], 'a'); file.write('Metric units.\\n'); file.close()")
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    run("default", "--edit")
    assert lines(folder) == ["Be brief.", "Metric units."]


def test_a_rule_is_shown_as_it_is_written(folder: DataFolder) -> None:
    assert "no [/b] [x]" in run("default", "--add", "no [/b] [x]")


def test_an_empty_card_says_so(folder: DataFolder) -> None:
    assert "The card of default is empty" in run("default")


def test_one_change_at_a_time(folder: DataFolder) -> None:
    assert "at a time" in run("default", "--add", "x", "--remove", "1")
    assert lines(folder) == []


def test_an_unknown_adapter(folder: DataFolder) -> None:
    with pytest.raises(UnknownName, match="nobody"):
        run("nobody")
