"""One schema: precedence, unknown keys, secrets, and that every setting is told and read."""

from __future__ import annotations

import ast
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from clawd import config
from clawd.config import JudgeSettings, ModelSettings, Section, ServerSettings, Settings
from clawd.errors import ConfigError
from clawd.paths import DataFolder

PACKAGE = Path(config.__file__).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
    for name in list(os.environ):
        if name.upper().startswith(config.ENV_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path))
    return DataFolder.default()


def write(folder: DataFolder, toml: str) -> None:
    folder.config_file.write_text(toml)


class TestPrecedence:
    def test_defaults(self, folder: DataFolder) -> None:
        assert config.load(folder) == Settings()
        assert config.load(folder).server.port == 30000

    def test_each_source_beats_the_next(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, "[server]\nport = 1\nhost = '127.0.0.2'\nmax_running = 3\n")
        monkeypatch.setenv("CLAWD_SERVER__PORT", "2")
        monkeypatch.setenv("CLAWD_SERVER__HOST", "127.0.0.3")
        server = config.load(folder, ["--server.port", "3"]).server
        assert (server.port, server.host, server.max_running) == (3, "127.0.0.3", 3)
        assert server.remembered == ServerSettings().remembered

    def test_sections_are_merged_in_depth(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, "[learn]\nsteps = 2\n[learn.lora]\nalpha = 3\n")
        monkeypatch.setenv("CLAWD_LEARN__LORA__RANK", "4")
        learn = config.load(folder, ["--learn.loss.support_k=5"]).learn
        assert (learn.steps, learn.lora.alpha, learn.lora.rank, learn.loss.support_k) == (2, 3.0, 4, 5)

    def test_environment_in_lower_case(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("clawd_server__port", "4")
        assert config.load(folder).server.port == 4

    def test_settings_made_in_code_ask_nobody(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, "[server]\nport = 1\n")
        monkeypatch.setenv("CLAWD_SERVER__PORT", "2")
        assert Settings().server.port == 30000

    def test_none_in_words(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, "[model]\ncontext = 512\npath = '/x.gguf'\n[learn.loss]\ndelta_clip = 'none'\n")
        monkeypatch.setenv("CLAWD_MODEL__CONTEXT", "none")
        settings = config.load(folder, ["--model.path", "none"])
        assert settings.model.context is None
        assert settings.model.path is None
        assert settings.learn.loss.delta_clip is None
        with pytest.raises(ConfigError, match=r"server\.port"):
            config.load(folder, ["--server.port", "none"])


class TestRefusals:
    @pytest.mark.parametrize(
        ("toml", "named"),
        [
            ("[server]\nprot = 1", "server.prot: no such setting"),
            ("[srver]\nport = 1", "srver: no such setting"),
            ("port = 1", "port: no such setting"),
            ("[learn.loss]\nrl_weigth = 1.0", "learn.loss.rl_weigth: no such setting"),
            ("[server]\nport = 70000", "server.port"),
            ("[server]\nport = 'x'", "server.port"),
            ("server = 3", "server"),
            ("[server\n", "clawd.toml is no TOML file"),
            ("[judge]\nkind = 'coin'", "judge.kind"),
        ],
    )
    def test_toml(self, folder: DataFolder, toml: str, named: str) -> None:
        write(folder, toml)
        with pytest.raises(ConfigError) as caught:
            config.load(folder)
        assert named in str(caught.value)

    def test_toml_that_is_no_text(self, folder: DataFolder) -> None:
        folder.config_file.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError):
            config.load(folder)

    @pytest.mark.parametrize(
        "name", ["CLAWD_SERVER__PROT", "CLAWD_SERVER_PORT", "CLAWD_SRVER__PORT", "clawd_srver__port", "CLAWD_PORT"]
    )
    def test_environment(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv(name, "1")
        with pytest.raises(ConfigError) as caught:
            config.load(folder)
        assert name.lower().removeprefix("clawd_").split("__")[-1] in str(caught.value).lower()

    def test_home_is_no_setting_and_no_error(self, folder: DataFolder) -> None:
        assert os.environ["CLAWD_HOME"]
        config.load(folder)

    @pytest.mark.parametrize(
        "flags",
        [
            ["--server.prot", "1"],
            ["--srver.port", "1"],
            ["--server.por", "1"],  # no abbreviations
            ["--port", "1"],
            ["--server.port"],
            ["--server.port", "x"],
            ["31000"],
            ["--server", '{"prot": 1}'],
        ],
    )
    def test_flags(self, folder: DataFolder, flags: list[str]) -> None:
        with pytest.raises(ConfigError):
            config.load(folder, flags)

    def test_a_setting_that_nothing_would_read(self, folder: DataFolder) -> None:
        with pytest.raises(ConfigError, match="opd_form"):
            config.load(folder, ["--learn.loss.guidance", "2"])
        settings = config.load(folder, ["--learn.loss.guidance", "2", "--learn.loss.opd_form", "forward"])
        assert settings.learn.loss.guidance == 2

    @pytest.mark.parametrize("kind", ["folder", "dangling link", "pipe"])
    def test_a_settings_file_that_is_no_file(self, folder: DataFolder, kind: str) -> None:
        path = folder.config_file
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(folder.root / "gone")
        with pytest.raises(ConfigError, match=r"clawd\.toml is no file"):
            config.load(folder)

    def test_message_never_repeats_a_value(self, folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        write(folder, "[judge]\napi_kye = 'hunter2'\n")
        with pytest.raises(ConfigError) as caught:
            config.load(folder)
        assert "api_kye" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        write(folder, "")
        monkeypatch.setenv("CLAWD_JUDGE", "hunter2")
        with pytest.raises(ConfigError) as caught:
            config.load(folder)
        assert "hunter2" not in str(caught.value)


class TestHandOver:
    settings = Settings(
        model=ModelSettings(path=Path("/models/x.gguf")),
        judge=JudgeSettings(kind="llm", api_key=SecretStr("hunter2")),
    )

    def test_round_trip(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLAWD_SERVER__PORT", "1")
        config.hand_over(self.settings, tmp_path / "settings.json")
        taken = config.take_over(tmp_path / "settings.json")
        assert taken == self.settings
        assert taken.judge.api_key is not None
        assert taken.judge.api_key.get_secret_value() == "hunter2"

    def test_is_the_owners_alone_even_over_a_file_of_everybodys(self, tmp_path: Path) -> None:
        path = tmp_path / "settings.json"
        path.write_text("{}")
        path.chmod(0o666)
        config.hand_over(self.settings, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [file.name for file in tmp_path.iterdir()] == ["settings.json"]

    def test_secret_shows_nowhere_else(self) -> None:
        assert "hunter2" not in repr(self.settings)
        assert "hunter2" not in self.settings.model_dump_json()


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], type[BaseModel]]]:
    """Each setting's path, and the section class that it is a field of."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, (*path, name))
        else:
            yield (*path, name), model


SETTINGS = list(leaves(Settings))
IDS = [".".join(path) for path, _ in SETTINGS]


@pytest.mark.parametrize(("path", "section"), SETTINGS, ids=IDS)
def test_every_setting_has_a_sentence(path: tuple[str, ...], section: type[BaseModel]) -> None:
    sentence = section.model_fields[path[-1]].description
    assert sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


CLASSES = {"Settings": Settings, **{section.__name__: section for _, section in SETTINGS}}


class SettingsRead:
    """Which `(section class, field)` a set of modules reads, by a small inference of types.

    Known to be a section: a name, argument or attribute annotated with its class, what is assigned from one, and a
    field of another section. A field of the same name on any other object doesn't count.
    """

    def __init__(self, *modules: str) -> None:
        self.found: set[tuple[str, str]] = set()
        self._attributes: dict[str, set[str]] = {}  # of objects, known to all modules
        trees = [ast.parse(module) for module in modules]
        for tree in trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self._learn_fields(node)
        for tree in trees:
            self._read(tree)

    def _learn_fields(self, node: ast.ClassDef) -> None:
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self._attributes.setdefault(item.target.id, set()).update(self._named_in(item.annotation))

    def _read(self, tree: ast.Module) -> None:
        names: dict[str, set[str]] = {}
        for _ in range(3):  # an assignment may stand before what explains it
            for node in ast.walk(tree):
                if isinstance(node, ast.arg) and node.annotation:
                    names.setdefault(node.arg, set()).update(self._named_in(node.annotation))
                elif isinstance(node, ast.Assign):
                    for target in node.targets:
                        self._assign(target, self._types(node.value, names), names)
                elif isinstance(node, ast.AnnAssign):
                    self._assign(node.target, self._named_in(node.annotation), names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                owners = self._types(node.value, names)
                self.found |= {(owner, node.attr) for owner in owners if node.attr in CLASSES[owner].model_fields}

    def _assign(self, target: ast.expr, types: set[str], names: dict[str, set[str]]) -> None:
        if isinstance(target, ast.Name):
            names.setdefault(target.id, set()).update(types)
        elif isinstance(target, ast.Attribute):
            self._attributes.setdefault(target.attr, set()).update(types)

    def _types(self, node: ast.expr, names: dict[str, set[str]]) -> set[str]:
        if isinstance(node, ast.Name):
            return names.get(node.id, set())
        if isinstance(node, ast.Attribute):
            fields = [CLASSES[owner].model_fields.get(node.attr) for owner in self._types(node.value, names)]
            nested = {field.annotation.__name__ for field in fields if field and isinstance(field.annotation, type)}
            return self._attributes.get(node.attr, set()) | (nested & CLASSES.keys())
        if isinstance(node, ast.Call):
            called = self._named_in(node.func)
            makes_all = getattr(node.func, "attr", getattr(node.func, "id", "")) in ("load", "take_over")
            return called | ({"Settings"} if makes_all else set())
        return set()

    @staticmethod
    def _named_in(node: ast.expr) -> set[str]:
        parts = {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node)}
        return {part for part in parts if part in CLASSES}


@pytest.fixture(scope="module")
def settings_read() -> set[tuple[str, str]]:
    files = [file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "config.py"]
    return SettingsRead(*(file.read_text() for file in files)).found


@pytest.mark.parametrize(("path", "section"), SETTINGS, ids=IDS)
def test_every_setting_is_read_somewhere(
    path: tuple[str, ...], section: type[Section], settings_read: set[tuple[str, str]]
) -> None:
    reads = (section.__name__, path[-1]) in settings_read
    assert reads, f"nothing reads the setting {'.'.join(path)}"


def test_the_reader_of_settings_can_say_no() -> None:
    job = """
class Job:
    options: LearnSettings
"""
    module = """
def f(job: Job, other: Thing, server: Thing) -> None:
    loss = job.options.loss
    loss.clip_low, other.clip_high, server.host, other.loss.clip_high, job.threads
    job.options.seed = 1
    settings = config.load(folder)
    settings.server.port
"""
    assert SettingsRead(job, module).found == {
        ("LearnSettings", "loss"),
        ("LossSettings", "clip_low"),
        ("Settings", "server"),
        ("ServerSettings", "port"),
    }


def test_defaults_survive_json() -> None:
    assert Settings(**json.loads(Settings().model_dump_json(exclude={"judge": {"api_key"}}))) == Settings()
