"""Which version serves, which stay, who may use which: the store's own rules."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlite_utils import Database

from clawd.errors import AdapterInUse, NameRefused, NotAllowed, Superseded, TransitionRefused, UnknownName
from clawd.store import Store
from clawd.store.records import Version
from clawd.store.schema import migrations
from tests.store.world import BASE, World


def active(world: World, count: int) -> list[Version]:
    """So many versions, one after the other; the last serves."""
    for _ in range(count):
        world.store.updates.activate(world.staged().id)
    return world.store.updates.versions(world.user.adapter.id)


def states(world: World) -> list[str]:
    return [version.state for version in world.store.updates.versions(world.user.adapter.id)]


class TestServing:
    def test_a_wish_is_granted_once(self, world: World) -> None:
        first, _ = active(world, 2)
        lifecycle = world.store.lifecycle
        wish = lifecycle.ask(world.user.adapter.id, first.id, "person", "why")
        assert lifecycle.waiting_switches() == [wish]
        lifecycle.grant(wish)
        assert states(world) == ["active", "retired"]
        assert lifecycle.switch(wish.id).state == "done"
        for again in (lambda: lifecycle.grant(wish), lambda: lifecycle.refuse(wish, "late")):
            with pytest.raises(TransitionRefused):
                again()

    def test_a_later_choice_overtakes_a_wish_that_nobody_answered(self, world: World) -> None:
        """A daemon that died in between must not undo what was chosen since, when it starts again."""
        first, second, third = active(world, 3)
        lifecycle, adapter = world.store.lifecycle, world.user.adapter.id
        old = lifecycle.ask(adapter, first.id, "person", "")
        newer = lifecycle.ask(adapter, second.id, "person", "")
        assert lifecycle.waiting_switches() == [newer]
        with pytest.raises(TransitionRefused):
            lifecycle.grant(old)
        lifecycle.choose(adapter, first.id)
        assert lifecycle.waiting_switches() == []
        assert [lifecycle.switch(wish.id).state for wish in (old, newer)] == ["refused", "refused"]
        assert world.store.updates.active_version(adapter).id == first.id
        assert third.number == 3

    def test_only_what_can_serve_can_be_wished_for(self, world: World) -> None:
        other, _ = world.store.people.add("other")
        (first,) = active(world, 1)
        staged = world.staged()
        with pytest.raises(UnknownName, match="it is staged"):
            world.store.lifecycle.ask(world.user.adapter.id, staged.id, "person", "")
        with pytest.raises(UnknownName):
            world.store.lifecycle.ask(other.adapter.id, first.id, "person", "")

    def test_a_choice_overtakes_what_is_staged(self, world: World) -> None:
        first, _ = active(world, 2)
        staged = world.staged()
        world.store.lifecycle.use(world.user.adapter.id, first.id)
        assert states(world) == ["active", "retired", "rejected"]
        assert world.store.signals.counts() == {"used": 4, "waiting": 2}
        assert world.store.updates.version(staged.id).reason == "another version was chosen meanwhile"
        assert world.store.verify() == []

    def test_what_is_made_from_another_version_never_becomes_active(self, world: World) -> None:
        (first,) = active(world, 1)
        staged = world.staged()
        connection = world.store._connection
        connection.change("UPDATE adapter_versions SET state = 'retired' WHERE id = ?", (first.id,))
        with pytest.raises(Superseded):
            world.store.updates.activate(staged.id)
        assert states(world) == ["retired", "staged"]

    def test_rollback_follows_the_line_that_a_version_comes_from(self, world: World) -> None:
        first, second = active(world, 2)
        lifecycle, adapter = world.store.lifecycle, world.user.adapter.id
        lifecycle.use(adapter, first.id)
        world.store.updates.activate(world.staged().id)  # the third, made from the first
        third = world.store.updates.versions(adapter)[2]
        assert lifecycle.before(third).id == first.id
        assert lifecycle.before(second).id == first.id
        assert lifecycle.before(first) is None
        lifecycle.remove(first.id)
        assert lifecycle.before(third) is None

    def test_a_version_from_elsewhere_goes_back_to_the_newest_older_one(self, world: World) -> None:
        _, second = active(world, 2)
        imported = add(world)
        assert (imported.number, imported.state) == (3, "retired")
        world.store.lifecycle.use(world.user.adapter.id, imported.id)
        assert world.store.lifecycle.before(imported).id == second.id
        assert world.store.verify() == []

    def test_a_number_that_an_update_is_about_to_take_is_taken(self, world: World) -> None:
        for _ in range(2):
            world.sample()
        update = world.store.updates.claim(world.user.adapter.id, BASE, 2, {})
        assert update is not None
        assert update.number == 1
        assert add(world).number == 2
        world.store.updates.stage(update.id, Path("/x"), "a", BASE, {}, {})
        world.store.updates.activate(update.id)
        assert [version.number for version in world.store.updates.versions(world.user.adapter.id)] == [1, 2]
        assert world.store.updates.newest(world.user.adapter.id).id == update.id  # an import is no update


def add(world: World) -> Version:
    return world.store.lifecycle.add(
        world.user.adapter.id,
        "import",
        {"from": "x.zip", "metrics": {"a/b": 1.0}},
        lambda _id, _n: (Path("/y"), "a", BASE),
    )


def test_an_import_that_cannot_be_placed_leaves_no_row(world: World) -> None:
    def place(_id: str, _number: int) -> tuple[Path, str, str]:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        world.store.lifecycle.add(world.user.adapter.id, "import", {}, place)
    assert world.store.updates.versions(world.user.adapter.id) == []
    assert world.store.verify() == []


class TestRemovingAnAdapter:
    def test_what_was_said_stays_and_nothing_is_learnt_from_it_any_more(self, world: World) -> None:
        people = world.store.people
        versions = active(world, 1)
        waiting = world.turn()
        sample = world.sample()
        adapter = world.user.adapter
        with pytest.raises(AdapterInUse, match="own adapter of default"):
            people.remove_adapter(adapter)
        people.set_adapter(world.user, people.create_adapter("other"))
        with pytest.raises(AdapterInUse, match="a version of it serves"):
            people.remove_adapter(adapter)
        world.store.lifecycle.use(adapter.id, None)
        running = world.begin(world.session("x"))
        with pytest.raises(AdapterInUse, match="is being answered"):
            people.remove_adapter(adapter)
        world.answer(running)
        people.remove_adapter(adapter)
        assert world.store.updates.version(versions[0].id).state == "pruned"
        assert world.store.turns.get(waiting).reason == "its adapter was removed"
        assert world.store.signals.get(sample).state == "quarantined"
        assert [one.name for one in people.adapters()] == ["other"]
        assert world.store.lifecycle.claimed_folders() == set()
        assert people.create_adapter("default").name == "default"
        assert world.store.verify() == []

    def test_a_running_update_holds_it(self, world: World) -> None:
        people = world.store.people
        world.sample()
        assert world.store.updates.claim(world.user.adapter.id, BASE, 1, {}) is not None
        adapter = world.user.adapter
        people.set_adapter(world.user, people.create_adapter("other"))
        with pytest.raises(AdapterInUse, match="an update of it runs"):
            people.remove_adapter(adapter)


class TestWhoMayUseWhich:
    def test_ones_own_and_what_is_shared(self, store: Store) -> None:
        people = store.people
        ann, _ = people.add("ann")
        bob, _ = people.add("bob", "ann")
        assert bob.adapter == ann.adapter
        cat, _ = people.add("cat")
        assert not people.may_use(cat, ann.adapter)
        people.share(ann.adapter, cat)
        people.share(ann.adapter, cat)
        assert people.may_use(cat, ann.adapter)
        assert [user.name for user in people.users_of(ann.adapter)] == ["ann", "bob", "cat"]
        people.unshare(ann.adapter, cat)
        assert people.adapters_of(cat) == [cat.adapter]
        with pytest.raises(NotAllowed):
            people.unshare(ann.adapter, bob)
        moved = people.set_adapter(bob, people.create_adapter("new"))
        assert [adapter.name for adapter in people.adapters_of(moved)] == ["new", "ann"]
        assert store.verify() == []

    @pytest.mark.parametrize("name", ["", "../../x", "a/b", "a\0b", "x" * 300, "-a", ".", "a~b", "a:v1", "a@b"])
    def test_names(self, store: Store, name: str) -> None:
        adapter = store.people.create_adapter("good")
        for refused in (
            lambda: store.people.create_adapter(name),
            lambda: store.people.rename_adapter(adapter, name),
            lambda: store.people.add(name),
        ):
            with pytest.raises(NameRefused):
                refused()

    def test_a_name_is_one_adapters_alone(self, store: Store) -> None:
        people = store.people
        people.create_adapter("lab")
        for refused in (
            lambda: people.create_adapter("lab"),
            lambda: people.add("lab"),
            lambda: people.rename_adapter(people.adapter("default"), "lab"),
        ):
            with pytest.raises(NameRefused, match="already"):
                refused()
        with pytest.raises(UnknownName):
            people.add("eve", "nothing")
        with pytest.raises(UnknownName):
            people.named("eve")
        with pytest.raises(UnknownName):
            people.create_adapter("x", ["nobody"])
        assert people.adapter_named("x") is None


OLD_GUARDS = {
    "updates": (
        ("running",),
        ("running>staged", "running>refused", "running>failed", "staged>active", "staged>refused"),
    ),
    "adapter_versions": (("staged",), ("staged>active", "staged>rejected", "active>retired", "retired>active")),
}


def test_a_folder_of_the_first_schema_is_brought_up_whole(tmp_path: Path) -> None:
    """With the triggers of that time: the new states must be let through, and old users keep their adapters."""
    path = tmp_path / "clawd.db"
    raw = sqlite3.connect(path)
    db = Database(raw)
    migrations.apply(db, stop_before="0002_lifecycle")
    for table, (firsts, steps) in OLD_GUARDS.items():
        allowed = " OR ".join("(OLD.state = '{}' AND NEW.state = '{}')".format(*step.split(">")) for step in steps)
        for name in ("first_state", "transition"):
            raw.execute(f"DROP TRIGGER {table}_{name}")
        raw.execute(
            f"CREATE TRIGGER {table}_first_state BEFORE INSERT ON {table} WHEN NEW.state NOT IN ('{firsts[0]}') "
            f"BEGIN SELECT RAISE(ABORT, '{table}: not a first state'); END"
        )
        raw.execute(
            f"CREATE TRIGGER {table}_transition BEFORE UPDATE OF state ON {table} WHEN OLD.state <> NEW.state "
            f"AND NOT ({allowed}) BEGIN SELECT RAISE(ABORT, '{table}: transition refused'); END"
        )
    raw.executescript(
        """
        INSERT INTO adapters VALUES ('a1', 'default', 1.0), ('a2', 'ann', 2.0);
        INSERT INTO users VALUES ('u1', 'default', NULL, 'a1', 1.0), ('u2', 'ann', 'h', 'a2', 2.0);
        INSERT INTO updates VALUES ('v1', 'a2', 1, NULL, 'running', NULL, '{}', NULL, 1.0, NULL);
        UPDATE updates SET state = 'staged';
        INSERT INTO adapter_versions VALUES
            ('v1', 'a2', 1, NULL, 'v1', 'staged', NULL, '/f', 'a', 'b', 1.0, NULL, NULL);
        UPDATE adapter_versions SET state = 'active';
        UPDATE updates SET state = 'active';
        """
    )
    raw.close()
    with Store(path) as store:
        ann = store.people.named("ann")
        assert store.people.adapters_of(ann) == [ann.adapter]
        version = store.updates.version("v1")
        assert (version.pinned, version.fault, version.state) == (False, None, "active")
        assert store.updates.get("v1").origin == "training"
        store.lifecycle.use(ann.adapter.id, None)
        assert [gone.id for gone in store.lifecycle.prune(0)] == ["v1"]
        added = store.lifecycle.add(ann.adapter.id, "copy", {}, lambda _id, _n: (Path("/y"), "a", "b"))
        assert (added.number, added.state) == (2, "retired")
        assert store.verify() == []
