"""Conversations over a restart: the same to the bit, never another's, and no file that isn't whole is believed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clawd.config import ModelSettings, ServerSettings, Settings
from clawd.server.engine.engine import Engine
from clawd.server.engine.restoring import SAVE_FROM_TOKENS
from clawd.server.engine.saved import SUFFIX, Origin, Savable, SavedStates
from clawd.server.engine.types import Priority, SamplingParams
from tests.server.engine.asking import Answer, adapter, ask, ids
from tests.tiny_gguf import SMOLLM2, TINY

ORIGIN = Origin("base", "f16", "1")
ROOM = ModelSettings(context=4096, kv_cells=4096)
LIMIT = 50_000_000


def prompt_of(seed: int, length: int = 1500) -> list[int]:
    return np.random.default_rng(seed).integers(3, 260, length).tolist()


@contextmanager
def serving(
    path: Path, folder: Path, origin: Origin = ORIGIN, limit: int = LIMIT, model: ModelSettings = ROOM, **server: Any
) -> Iterator[Engine]:
    """An engine that is stopped in order at the end."""
    settings = Settings(model=model, server=ServerSettings(**server))
    engine = Engine(path, settings, saved=SavedStates(folder, origin, limit))
    engine.start()
    try:
        yield engine
        engine.stop(5)
    finally:
        engine.close()


def told(answer: Answer) -> list[tuple[int, float]]:
    return [(token.id, token.logprob) for token in answer.tokens]


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def next_turn(engine: Engine, prompt: list[int], **fields: Any) -> Answer:
    answer = ask(engine, [*prompt, *prompt_of(99, 20)], 8, sampling=SamplingParams(temperature=0), **fields)
    answer.wait()
    return answer


def test_the_next_turn_after_a_restart_is_the_same_to_the_bit(tiny_model: Path, tmp_path: Path) -> None:
    prompt = prompt_of(1)
    with serving(tiny_model, tmp_path / "none") as engine:
        ids(engine, prompt, 4)
        expected = told(next_turn(engine, prompt))
    with serving(tiny_model, tmp_path / "states") as engine:
        ids(engine, prompt, 4)
        assert engine.stats().saved_states == 0
    with serving(tiny_model, tmp_path / "states") as engine:
        assert engine.stats().saved_states == 1
        again = next_turn(engine, prompt)
        assert again.wait().cached_tokens >= len(prompt)
        assert told(again) == expected
        stats = engine.stats()
        assert stats.restored_tokens >= len(prompt)
        assert stats.prompt_tokens <= 20, "it isn't read again"


def test_the_embedded_model_under_an_adapter_goes_on_to_the_bit(
    embedded_model: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    prompt, version = prompt_of(1, SAVE_FROM_TOKENS), adapter(tmp_path_factory.mktemp("adapter"), SMOLLM2, 1)
    with serving(embedded_model, tmp_path) as engine:
        ids(engine, prompt, 2, version=version)
        expected = told(next_turn(engine, prompt, version=version))
    with serving(embedded_model, tmp_path) as engine:
        again = next_turn(engine, prompt, version=version)
        assert again.wait().cached_tokens >= len(prompt)
        assert told(again) == expected


def test_several_conversations_with_a_common_beginning_come_back_each_as_it_was(
    tiny_model: Path, tmp_path: Path
) -> None:
    system = prompt_of(1, 600)
    prompts = [[*system, *prompt_of(seed, 100)] for seed in (2, 3, 4)]
    with serving(tiny_model, tmp_path) as engine:
        for prompt in prompts:
            ids(engine, prompt, 4)
        expected = [told(next_turn(engine, prompt)) for prompt in prompts]
    with serving(tiny_model, tmp_path) as engine:
        for prompt, first in zip(prompts, expected, strict=True):
            again = next_turn(engine, prompt)
            assert again.wait().cached_tokens >= len(prompt)
            assert again.ids == [token for token, _ in first]
        other = ask(engine, [*system, 5, 6, 7], 2).wait()
        assert other.cached_tokens >= len(system)


def test_what_shares_most_of_its_cells_with_others_in_memory_does_not_push_them_out(
    tiny_model: Path, tmp_path: Path
) -> None:
    system = prompt_of(1, 1500)
    prompts = [[*system, *prompt_of(seed, 100)] for seed in range(2, 5)]
    with serving(tiny_model, tmp_path) as engine:
        for prompt in prompts:
            ids(engine, prompt, 4)
    with serving(tiny_model, tmp_path) as engine:  # 4096 cells: two of them fit whole
        cached = [ask(engine, [*prompt, 5], 2).wait().cached_tokens for prompt in prompts]
        assert [count >= 1600 for count in cached] == [True, True, False]
        assert cached[2] >= 1500
        assert [ask(engine, [*prompt, 5], 2).wait().cached_tokens >= 1600 for prompt in prompts] == [True] * 3


def test_what_is_running_when_it_stops_is_saved_and_short_or_background_ones_are_not(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serving(tiny_model, tmp_path) as engine:
        ids(engine, prompt_of(1, 100))
        ids(engine, prompt_of(2), 2, priority=Priority.BACKGROUND)
        running = ask(engine, prompt_of(3), 2000)
        running.wait_for_tokens(3)
        engine.stop(0)
        assert running.wait().reason == "error"
    with serving(tiny_model, tmp_path) as engine:
        assert engine.stats().saved_states == 1
        assert ask(engine, [*prompt_of(3), 5], 2).wait().cached_tokens >= 1500


def test_a_state_belongs_to_its_version_and_goes_with_it(tiny_model: Path, tmp_path: Path) -> None:
    states, versions = tmp_path / "states", [adapter(tmp_path, TINY, seed) for seed in (1, 2)]
    with serving(tiny_model, states) as engine:
        ids(engine, prompt_of(1), 2, version=versions[0])
    with serving(tiny_model, states) as engine:
        assert next_turn(engine, prompt_of(1)).wait().cached_tokens == 0
        assert next_turn(engine, prompt_of(1), version=versions[1]).wait().cached_tokens == 0
        engine.retire(versions[0].id).result(10)
        assert engine.stats().saved_states == 0


@pytest.mark.parametrize("field", ["base_fingerprint", "kv_type", "llama_cpp"])
def test_what_another_server_computed_is_not_used_and_is_removed(tiny_model: Path, tmp_path: Path, field: str) -> None:
    with serving(tiny_model, tmp_path) as engine:
        ids(engine, prompt_of(1), 2)
    assert len(files(tmp_path)) == 1
    with serving(tiny_model, tmp_path, replace(ORIGIN, **{field: "other"})) as engine:
        assert files(tmp_path) == []
        assert next_turn(engine, prompt_of(1)).wait().cached_tokens == 0


def damages(whole: bytes) -> dict[str, bytes]:
    def flipped(at: int) -> bytes:
        return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]

    half = len(whole) // 2
    return {
        "empty": b"",
        "junk": b"junk" * 100,
        "cut in the head": whole[:20],
        "cut in the tokens": whole[:300],
        "half": whole[:half],
        "one byte short": whole[:-1],
        "one byte more": whole + b"x",
        "another token": flipped(1000),
        "a bit of the state": flipped(half),
        "a bit of the digest": flipped(len(whole) - 1),
        "a head that never ends": b"clawd state 1\n" + b"{" * 100_000,
        "a head of another kind": b"clawd state 1\n[1, 2]\n",
        "a head that nests": b"clawd state 1\n" + b"[" * 4000 + b"\n",
        **{
            f"{count.decode()} tokens": b'clawd state 1\n{"tokens": ' + count + b', "version": null}\n'
            for count in (b"-1", b"NaN", b"1e999", b"1" + b"0" * 12, b"1" + b"0" * 30, b"1" + b"0" * 3000)
        },
    }


def test_a_file_that_is_not_whole_is_ignored_and_removed(tiny_model: Path, tmp_path: Path) -> None:
    states = tmp_path / "states"
    with serving(tiny_model, states) as engine:
        ids(engine, prompt_of(1), 2)
        expected = next_turn(engine, prompt_of(1)).ids
    (file,) = files(states)
    whole = file.read_bytes()
    for name, damaged in damages(whole).items():
        shutil.rmtree(states)
        states.mkdir()
        file.write_bytes(damaged)
        (states / ".left-over").write_bytes(whole[:1000])
        (states / f"renamed{SUFFIX}").write_bytes(whole)
        engine = Engine(tiny_model, Settings(model=ROOM), saved=SavedStates(states, ORIGIN, LIMIT))
        engine.start()
        try:
            answer = next_turn(engine, prompt_of(1))
            assert answer.wait().cached_tokens == 0, name
            assert answer.ids == expected, name
            assert files(states) == [], name
            assert engine.alive
        finally:
            engine._restoring = None  # nothing is saved of this one
            engine.close()


def test_the_files_are_their_owners_alone(tiny_model: Path, tmp_path: Path) -> None:
    states = tmp_path / "cache" / "states"
    with serving(tiny_model, states) as engine:
        ids(engine, prompt_of(1), 2)
    assert states.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in files(states)] == [0o600]


# -- the folder without an engine --------------------------------------------------------------------------------------


def savable(seed: int, size: int = 1000, version: str | None = None, length: int = 10) -> Savable:
    tokens = np.array(prompt_of(seed, length), np.int32)
    return Savable(version, tokens, size, lambda: np.full(size, seed, np.uint8))


def held(states: SavedStates, *wanted: Savable) -> list[bool]:
    return [states.best(each.version, each.tokens)[1] == len(each.tokens) for each in wanted]


def always(_size: int) -> bool:
    return True


def test_the_latest_stay_when_the_room_is_used_up(tmp_path: Path) -> None:
    old, new, newest = savable(1), savable(2), savable(3)
    states = SavedStates(tmp_path, ORIGIN, 2600)
    states.save([old], always)
    os.utime(files(tmp_path)[0], (1, 1))
    states.save([new], always)
    assert held(states, old, new) == [True, True]
    states.save([newest], always)
    assert held(states, old, new, newest) == [False, True, True]
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 2600
    assert states.save([savable(4, size=5000)], always) == 0, "what doesn't fit pushes nothing out"
    assert held(states, new, newest) == [True, True]
    smaller = SavedStates(tmp_path, ORIGIN, 1400)
    assert len(smaller) == len(files(tmp_path)) == 1
    assert len(SavedStates(tmp_path, ORIGIN, 0)) == 0
    assert files(tmp_path) == [], "switched off, nothing is left"


def test_what_lies_there_already_is_not_written_again_and_what_it_grew_out_of_goes(tmp_path: Path) -> None:
    states = SavedStates(tmp_path, ORIGIN, LIMIT)
    short, long = savable(1, length=10), savable(1, length=30)
    other = savable(1, length=10, version="v1")
    assert states.save([short, other], always) == 2
    assert states.save([short], always) == 0
    assert states.save([long], always) == 1
    assert len(states) == 2
    assert held(states, long, other) == [True, True]


def test_without_time_nothing_is_begun_and_what_was_there_stays(tmp_path: Path) -> None:
    states = SavedStates(tmp_path, ORIGIN, LIMIT)
    states.save([savable(1)], always)
    assert states.save([savable(2)], lambda _: False) == 0
    assert held(states, savable(1), savable(2)) == [True, False]


def test_a_folder_that_cannot_be_written_to_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    states = SavedStates(tmp_path / "states", ORIGIN, LIMIT)
    (tmp_path / "states").rmdir()
    assert states.save([savable(1)], always) == 0
    assert "can't be saved" in caplog.text


@pytest.mark.parametrize("after", [1, 7, 40])
def test_killed_while_it_writes_it_leaves_whole_files_or_none(tmp_path: Path, after: int) -> None:
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from clawd.server.engine.saved import SavedStates
        from tests.server.engine.test_saved import LIMIT, ORIGIN, always, savable
        states = SavedStates(Path(sys.argv[1]), ORIGIN, LIMIT)
        for seed in range(10_000):
            states.save([savable(seed, size=3_000_000)], always)
            print(seed, flush=True)
    """)
    writer = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    try:
        for _ in range(after):
            writer.stdout.readline()
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    states = SavedStates(tmp_path, ORIGIN, LIMIT)
    assert len(states) == len(files(tmp_path)) > 0
    for seed in range(after + 2):
        saved, length = states.best(None, savable(seed).tokens)
        if saved is not None and length == 10:
            state = states.read(saved)
            assert state is not None and (state == seed).all() and len(state) == 3_000_000
