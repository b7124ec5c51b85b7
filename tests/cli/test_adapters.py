"""`clawd adapter …` on a folder whose daemon is stopped: the store and the files alone."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from clawd.errors import AdapterInUse, AdapterRejected, UnknownName
from clawd.learner import transfer
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import Version
from tests.adapter_files import base_of, served, trained, write_version
from tests.cli.command import clawd
from tests.store.world import World


class Home:
    """A data folder for the tiny model, with `count` versions of `default`'s adapter; the last one serves."""

    def __init__(self, root: Path, model: Path, count: int) -> None:
        self.data = DataFolder(root)
        self.data.create()
        self.model = model
        self.base = base_of(model, self.data.cache)
        self.store = Store(self.data.database)
        self.user = self.store.people.named("default")
        self.versions = [served(self.data, self.store, self.user, self.base, seed) for seed in range(count)]

    def run(self, *arguments: str, fails: bool = False) -> str:
        """stdout; stderr of a command that is to fail."""
        done = clawd(self.data.root, "adapter", *arguments, CLAWD_MODEL__PATH=str(self.model))
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def states(self, name: str = "default") -> list[str]:
        adapter = self.store.people.adapter(name)
        return [version.state for version in self.store.updates.versions(adapter.id)]

    def version(self, number: int, name: str = "default") -> Version:
        found = self.store.updates.version_number(self.store.people.adapter(name).id, number)
        assert found is not None
        return found


@pytest.fixture
def home(tmp_path: Path, tiny_model: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home", tiny_model, 3)
    yield made
    assert made.store.verify() == []
    made.store.close()


def test_list_and_show(home: Home) -> None:
    home.store.people.add("ann", "default")
    home.run("pin", "default:v1")
    (facts,) = json.loads(home.run("list", "--json"))
    assert (facts["name"], facts["serves"], facts["users"]) == ("default", 3, ["default", "ann"])
    told = json.loads(home.run("show", "clawd@default", "--json"))
    assert [version["state"] for version in told["versions"]] == ["retired", "retired", "active"]
    first, _, third = told["versions"]
    assert (first["pinned"], third["pinned"]) == (True, False)
    assert (first["parent"], third["parent"]) == (None, 2)
    assert (third["samples"], third["kl_step"], third["kl_base"]) == (1, 0.03, 0.06)
    assert third["bytes"] > 10_000
    assert third["trouble"] is None
    table = home.run("show", "default")
    for part in ("v1", "retired, pinned", "0.0300", "fresh weights", "MB"):
        assert part in table, part
    assert "no adapter 'nobody'" in home.run("show", "nobody", fails=True)


def test_show_names_a_foreign_base(home: Home, embedded_model: Path) -> None:
    done = clawd(home.data.root, "adapter", "list", "--json", CLAWD_MODEL__PATH=str(embedded_model))
    (facts,) = json.loads(done.stdout)
    assert f"made for another base ({home.base.fingerprint[:12]})" in facts["trouble"]


def test_use_and_rollback(home: Home) -> None:
    assert "version 1" in home.run("use", "default:v1")
    assert home.states() == ["active", "retired", "retired"]
    assert "the bare base" in home.run("rollback", "default")
    assert home.states() == ["retired", "retired", "retired"]
    assert "nothing to go back from" in home.run("rollback", "default", fails=True)
    home.run("use", "clawd@default:v3")
    assert "version 2 instead of version 3" in home.run("rollback", "default")
    assert "version 1 instead of version 2" in home.run("rollback", "default")
    assert "the bare base" in home.run("use", "default:base")
    for name, reason in (("default:v9", "no version 9"), ("default", "names no version"), ("x:v1", "no adapter 'x'")):
        assert reason in home.run("use", name, fails=True)
    home.run("rm", "default:v2", "--yes")
    assert "it is pruned: removed by hand" in home.run("use", "default:v2", fails=True)


def test_rm_removes_what_nobody_needs_and_asks_first(home: Home) -> None:
    folder = home.versions[0].folder
    assert home.run("rm", "default:v1", fails=True)  # nobody says yes
    assert folder.is_dir()
    home.run("pin", "default:v1")
    assert "it is pinned" in home.run("rm", "default:v1", "--yes", fails=True)
    home.run("unpin", "default:v1")
    home.run("rm", "default:v1", "--yes")
    assert not folder.exists()
    assert home.states() == ["pruned", "retired", "active"]
    assert "it serves now" in home.run("rm", "default:v3", "--yes", fails=True)
    assert "own adapter of default" in home.run("rm", "default", "--yes", fails=True)


def test_rm_of_a_whole_adapter(home: Home) -> None:
    home.run("create", "project", "--from", "default:v2", "--user", "default")
    adapter = home.store.people.adapter("project")
    assert home.states("project") == ["active"]
    assert "project and its 1 versions" in clawd(home.data.root, "adapter", "rm", "project").stdout
    home.run("rm", "project", "--yes")
    assert home.store.people.adapter_named("project") is None
    assert not (home.data.adapters / adapter.id).exists()
    assert [adapter.name for adapter in home.store.people.adapters_of(home.user)] == ["default"]
    home.run("create", "project")  # the name is free


def test_create_from_another_copies_its_version(home: Home) -> None:
    assert "clawd@lab begins as clawd@default:v3" in home.run("create", "lab", "--from", "default")
    version = home.version(1, "lab")
    assert version.state == "active"
    assert version.gguf_sha256 == home.versions[2].gguf_sha256
    assert (version.folder / "adapter.gguf").read_bytes() == (home.versions[2].folder / "adapter.gguf").read_bytes()
    (told,) = json.loads(home.run("show", "lab", "--json"))["versions"]
    assert (told["origin"], told["kl_base"]) == ("copy", 0.06)
    assert "already" in home.run("create", "lab", fails=True)
    shutil.rmtree(home.versions[0].folder)
    assert "lost its files" in home.run("create", "other", "--from", "default:v1", fails=True)
    assert home.store.people.adapter_named("other") is None


def test_rename(home: Home) -> None:
    home.run("create", "lab")
    assert "already" in home.run("rename", "lab", "default", fails=True)
    assert "can't be a name" in home.run("rename", "lab", "../x", fails=True)
    assert "clawd@bench" in home.run("rename", "clawd@lab", "bench")
    assert "it is called 'bench' now" in home.run("show", "lab", fails=True)
    home.run("create", "lab")
    assert home.store.people.renamed_to("lab") == "bench"
    assert home.store.people.adapter("lab").name == "lab"


def test_sharing(home: Home) -> None:
    def user(*arguments: str) -> tuple[int, str]:
        done = clawd(home.data.root, "user", *arguments)
        return done.returncode, done.stdout + done.stderr

    people = home.store.people
    assert user("add", "ann")[0] == 0
    assert user("add", "bob", "--adapter", "ann")[0] == 0
    assert people.named("bob").adapter == people.named("ann").adapter
    home.run("create", "lab")
    home.run("share", "lab", "ann")
    assert [adapter.name for adapter in people.adapters_of(people.named("ann"))] == ["ann", "lab"]
    assert user("set", "bob", "--adapter", "lab")[0] == 0
    assert people.named("bob").adapter.name == "lab"
    assert people.may_use(people.named("bob"), people.adapter("ann"))
    assert "bob's own adapter" in home.run("unshare", "lab", "bob", fails=True)
    home.run("unshare", "lab", "ann")
    assert not people.may_use(people.named("ann"), people.adapter("lab"))
    assert "no adapter 'x'" in user("set", "bob", "--adapter", "x")[1]
    assert "adapter 'lab' already" in user("add", "lab")[1]
    assert people.adapter_named("lab") is not None
    assert "lab" in user("list")[1]


def test_resume(home: Home) -> None:
    home.store.lifecycle.halt(home.user.adapter.id, "3 updates in a row came to nothing")
    assert "3 updates in a row" in home.run("list")
    assert "learns again" in home.run("resume", "default")
    assert home.store.lifecycle.halted(home.user.adapter.id) is None
    assert "was not halted" in home.run("resume", "default")


class TestFile:
    """export and import."""

    def test_there_and_back(self, home: Home, tmp_path: Path) -> None:
        file = tmp_path / "x.zip"
        assert home.run("export", "default:v2", str(file)).strip() == str(file)
        home.run("create", "lab")
        assert home.run("import", str(file), "lab").strip() == "clawd@lab:v1"
        assert home.states("lab") == ["retired"]
        assert home.run("import", str(file), "default", "--use").strip() == "clawd@default:v4"
        assert home.states() == ["retired", "retired", "retired", "active"]
        imported = home.version(4)
        for name in ("adapter.gguf", "adapter_model.safetensors", "optimizer.safetensors"):
            assert (imported.folder / name).read_bytes() == (home.versions[1].folder / name).read_bytes()
        assert "version 3 instead of version 4" in home.run("rollback", "default")
        assert list(home.data.cache.glob("import-*")) == []
        assert "no folder" in home.run("export", "default:v2", str(tmp_path / "nowhere" / "x.zip"), fails=True)

    def test_merge_writes_a_model_that_was_checked(self, home: Home, tmp_path: Path) -> None:
        file = tmp_path / "merged.gguf"
        assert "the adapter's own effect is" in home.run("merge", "default:v2", str(file))
        assert base_of(file, home.data.cache).linears == home.base.linears
        assert "exists already" in home.run("merge", "default:v2", str(file), fails=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "merged.gguf"]

    def test_the_default_is_the_active_version_here(
        self, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        assert home.run("export", "default").strip() == "default-v3.zip"
        assert zipfile.is_zipfile(tmp_path / "default-v3.zip")

    def test_what_is_dangerous_damaged_or_foreign_is_refused_by_name(self, home: Home, tmp_path: Path) -> None:
        """A5, P3, P4. Nothing of it stays."""
        good = tmp_path / "good.zip"
        home.run("export", "default:v1", str(good))
        before = sorted(path for path in home.data.root.rglob("*") if path.is_file())
        for number, (make, reason) in enumerate(BAD_FILES):
            file = tmp_path / f"{number}.zip"
            make(good, file)
            with pytest.raises(AdapterRejected) as refused:
                transfer.import_file(file, home.user.adapter, home.base, home.data, home.store)
            assert reason in str(refused.value)
        assert "can't be read" in home.run("import", str(tmp_path / "none.zip"), "default", fails=True)
        assert home.states() == ["retired", "retired", "active"]
        after = {path for path in home.data.root.rglob("*") if path.is_file()}
        assert {path for path in after - set(before) if "clawd.db" not in path.name} == set()
        assert not (tmp_path / "escaped").exists()

    def test_any_damage_is_refused_or_harmless(self, home: Home, tmp_path: Path) -> None:
        """Whatever byte is wrong, however the file is packed: a clear refusal, or the very same contents."""
        file = tmp_path / "x.zip"
        home.run("export", "default:v1", str(file))
        with zipfile.ZipFile(file) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        random = np.random.default_rng(0)
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
            with zipfile.ZipFile(file, "w", method) as archive:
                for name, data in contents.items():
                    archive.writestr(name, data)
            good = file.read_bytes()
            # Where a zip's own structure lies: its end, and the heads of its files.
            heads = [good.find(name.encode()) - place for name in contents for place in range(30)]
            places = [*random.integers(0, len(good), 10), *random.choice(heads, 15), *random.integers(-400, -1, 15)]
            for number, place in enumerate(places):
                damaged = bytearray(good)
                damaged[place] ^= 1 << random.integers(0, 8)
                file.write_bytes(damaged)
                folder = tmp_path / f"{method}-{number}"
                folder.mkdir()
                try:
                    transfer.unpack(file, folder, home.base)
                except AdapterRejected:
                    continue
                assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents

    def test_another_base(self, home: Home, tmp_path: Path, embedded_model: Path) -> None:
        file = tmp_path / "x.zip"
        home.run("export", "default:v1", str(file))
        done = clawd(home.data.root, "adapter", "import", str(file), "default", CLAWD_MODEL__PATH=str(embedded_model))
        assert done.returncode == 1
        assert f"made for another base model ({home.base.fingerprint[:12]})" in done.stderr


Make = Callable[[Path, Path], None]


def rewritten(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> Make:
    """The good file with other contents, its manifest left as it is."""

    def make(good: Path, file: Path) -> None:
        with zipfile.ZipFile(good) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in change(contents).items():
                archive.writestr(name, data)

    return make


def refilled(change: Callable[[Path], None]) -> Make:
    """The good file with other contents and a manifest that fits them."""

    def make(good: Path, file: Path) -> None:
        import hashlib

        folder = file.with_suffix("")
        with zipfile.ZipFile(good) as archive:
            archive.extractall(folder)
        change(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        for name in manifest["sha256"]:
            manifest["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with zipfile.ZipFile(file, "w") as archive:
            for path in folder.iterdir():
                archive.write(path, path.name)

    return make


def as_bytes(data: bytes) -> Make:
    return lambda _, file: file.write_bytes(data) and None


def twice(good: Path, file: Path) -> None:
    shutil.copy(good, file)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("manifest.json", "{}")


def other_weights(folder: Path) -> None:
    """PEFT's weights of another version than the GGUF's."""
    from clawd.model.lora import LoraBase
    from tests.tiny_gguf import TINY

    linears = {f"blk.{b}.{n}.weight": shape for b in range(TINY.n_layers) for n, shape in TINY.linear.items()}
    base = LoraBase("f", "llama", TINY.n_layers, TINY.n_heads, TINY.n_kv_heads, linears)
    write_version(folder / "other", base, seed=77)
    shutil.copy(folder / "other" / "adapter_model.safetensors", folder)
    shutil.rmtree(folder / "other")


def with_config(**values: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


def bomb(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {**contents, "adapter_config.json": b" " * (2**24 + 1)}


def torn(contents: dict[str, bytes]) -> dict[str, bytes]:
    return {**contents, "adapter.gguf": contents["adapter.gguf"][:-100]}


BAD_FILES: list[tuple[Make, str]] = [
    (as_bytes(b""), "is empty"),
    (as_bytes(b"GGUF and more"), "is no zip file"),
    (as_bytes(pickle.dumps({"a": 1})), "is a pickle"),
    (rewritten(lambda c: {**c, "adapter_model.bin": b"x"}), "holds a pickle, 'adapter_model.bin'"),
    (rewritten(lambda c: {"archive/data.pkl": b"x"}), "holds a pickle, 'archive/data.pkl'"),  # a torch file is a zip
    (rewritten(lambda c: {**c, "../escaped": b"x"}), "leads out of its folder"),
    (rewritten(lambda c: {**c, "..\\escaped": b"x"}), "leads out of its folder"),
    (rewritten(lambda c: {**c, "/tmp/escaped": b"x"}), "leads out of its folder"),
    (rewritten(lambda c: {**c, "run.py": b"x"}), "holds 'run.py' besides"),
    (rewritten(lambda c: {n: d for n, d in c.items() if n != "adapter.gguf"}), "lacks adapter.gguf"),
    (twice, "holds a file twice"),
    (rewritten(bomb), "adapter_config.json is longer than"),
    (rewritten(lambda c: {**c, "manifest.json": b"{}"}), "no valid manifest"),
    (rewritten(torn), "adapter.gguf is not as the manifest says"),
    (refilled(lambda f: (f / "adapter.gguf").write_bytes(b"GGUF") and None), "damaged or half-written"),
    (refilled(other_weights), "is not what adapter.gguf holds"),
    (refilled(lambda f: (f / "adapter_model.safetensors").write_bytes(b"junk") and None), "can't be read"),
    (refilled(with_config(r=8)), "says rank 8"),
    (refilled(with_config(lora_alpha=64)), "scale 64"),
]


def test_a_version_that_an_update_starts_from_stays(home: Home) -> None:
    """The update's child reads it; somebody has chosen another one meanwhile."""
    world = World(home.store)
    turn = world.turn(base=home.base.fingerprint)
    home.store.turns.give_next_state(turn, turn, [{"role": "user", "content": "thanks"}])
    home.store.signals.settle(turn, [], 1)
    update = home.store.updates.claim(home.user.adapter.id, home.base.fingerprint, 1, {})
    assert update is not None
    home.run("use", "default:v1")
    with pytest.raises(AdapterInUse, match="an update starts from it"):
        home.store.lifecycle.remove(home.versions[2].id)
    assert [version.number for version in home.store.lifecycle.prune(0)] == [2]
    home.store.updates.fail(update.id, "interrupted", None)
    with pytest.raises(UnknownName):
        home.store.lifecycle.pin(home.versions[1].id, True)


def in_doubt(home: Home) -> Version:
    return trained(home.data, home.store, home.user, home.base, 9, doubt="The gate objects to version 4: it babbles.")


def test_a_version_in_doubt_waits_for_a_word(home: Home) -> None:
    assert "waits for your word" in home.run("accept", "default", fails=True)
    version = in_doubt(home)
    assert home.store.updates.to_load() == []
    assert "clawd@default will answer with version 4" in home.run("accept", "clawd@default")
    assert [one.id for one in home.store.updates.to_load()] == [version.id]
    assert "waits for your word" in home.run("refuse", "default", fails=True)


def test_a_version_in_doubt_is_turned_down(home: Home) -> None:
    in_doubt(home)
    assert "stays as it is" in home.run("refuse", "default")
    assert home.states() == ["retired", "retired", "active", "rejected"]
    assert home.version(4).reason == "turned down by a person. The gate objects to version 4: it babbles."
