"""Which versions are in memory: wanted ones until they retire, retired ones only while a request on them runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.errors import AdapterError, AdapterRejected
from clawd.server.engine.engine import Engine
from clawd.server.engine.types import AdapterVersion
from tests.server.engine.asking import adapter, ask, ids, running, until
from tests.tiny_gguf import TINY

PROMPT = [1, 50, 60, 70, 80, 90]


@pytest.fixture
def engine(tiny_model: Path) -> Iterator[Engine]:
    with running(tiny_model) as started:
        yield started


@pytest.fixture
def version(tmp_path: Path) -> AdapterVersion:
    return adapter(tmp_path, TINY, 1)


def loaded(engine: Engine) -> int:
    return engine.stats().versions_loaded


def test_a_request_that_is_admitted_after_its_version_retired_leaves_nothing(
    engine: Engine, version: AdapterVersion
) -> None:
    engine.load(version).result(10)
    expected = ids(engine, PROMPT, version=version)
    engine.retire(version.id).result(10)
    assert loaded(engine) == 0
    for _ in range(2):
        late = ask(engine, PROMPT, version=version)
        late.wait()
        assert late.ids == expected
        until(lambda: loaded(engine) == 0, 5)


def test_late_requests_share_the_version_until_the_last_one_ends(engine: Engine, version: AdapterVersion) -> None:
    engine.load(version).result(10)
    engine.retire(version.id).result(10)
    long = ask(engine, PROMPT, 400, version=version)
    long.wait_for_tokens(1)
    ids(engine, PROMPT, 1, version=version)
    assert loaded(engine) == 1
    assert not long.done
    long.handle.cancel()
    long.wait()
    until(lambda: loaded(engine) == 0, 5)


def test_a_version_can_retire_before_it_was_ever_loaded(engine: Engine, version: AdapterVersion) -> None:
    engine.retire(version.id).result(10)
    ids(engine, PROMPT, version=version)
    until(lambda: loaded(engine) == 0, 5)


def test_loading_a_retired_version_keeps_it_again(engine: Engine, version: AdapterVersion) -> None:
    engine.retire(version.id).result(10)
    engine.load(version).result(10)
    ids(engine, PROMPT, version=version)
    ids(engine, PROMPT)  # by now the one before is released
    assert loaded(engine) == 1


def test_a_load_that_fails_does_not_make_the_version_wanted(engine: Engine, version: AdapterVersion) -> None:
    data = version.gguf.read_bytes()
    engine.retire(version.id).result(10)
    version.gguf.write_bytes(b"")
    with pytest.raises(AdapterRejected, match="is empty"):
        engine.load(version).result(10)
    version.gguf.write_bytes(data)
    ids(engine, PROMPT, version=version)
    until(lambda: loaded(engine) == 0, 5)


def test_a_version_that_nobody_retired_stays(engine: Engine, version: AdapterVersion) -> None:
    ids(engine, PROMPT, version=version)
    ids(engine, PROMPT)
    assert loaded(engine) == 1


def test_a_wanted_version_is_served_whatever_becomes_of_its_file(tiny_model: Path, tmp_path: Path) -> None:
    wanted = [adapter(tmp_path, TINY, seed) for seed in (1, 2, 3)]
    others = [adapter(tmp_path, TINY, seed) for seed in (4, 5, 6)]
    with running(tiny_model, adapters_loaded=1) as engine:
        for version in wanted:
            engine.load(version).result(10)
        first = [ids(engine, PROMPT, version=version) for version in wanted]
        wanted[0].gguf.unlink()
        wanted[1].gguf.write_bytes(b"junk")
        wanted[2].gguf.write_bytes(wanted[2].gguf.read_bytes()[:-100])
        for version in others:  # each of these is unloaded by the next
            ids(engine, PROMPT, version=version)
        assert [ids(engine, PROMPT, version=version) for version in wanted] == first
        until(lambda: loaded(engine) == len(wanted) + 1, 5)
        engine.retire(wanted[0].id).result(10)
        late = ask(engine, PROMPT, version=wanted[0]).wait()
        assert late.reason == "error"
        assert isinstance(late.cause, AdapterError)
        assert "Restore" in str(late.cause)
