"""Every arm is made of settings that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bench.personalize.arms import ARMS
from clawd.config import Settings, load
from clawd.paths import DataFolder

WANTED = {
    "hybrid",
    "grpo",
    "opd",
    "hint-random",
    "hint-token",
    "no-delta-clip",
    "k1",
    "k2",
    "k8",
    "teacher-base",
    "card",
}


def settings(name: str, folder: DataFolder) -> Settings:
    return load(folder, ARMS[name].flags)


@pytest.mark.parametrize("name", ARMS)
def test_the_daemon_takes_the_flags(name: str, tmp_path: Path) -> None:
    assert settings(name, DataFolder(tmp_path)).learn.enabled is (name != "none" and ARMS[name].memory is None)


def test_arms_differ_from_the_default_in_what_they_are_named_for(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert set(ARMS) >= WANTED | {"joint", "none", "memory"}
    assert settings("grpo", folder).learn.loss.method == "grpo"
    assert settings("no-delta-clip", folder).learn.loss.delta_clip is None
    assert [settings(name, folder).learn.loss.support_k for name in ("k1", "k2", "hybrid", "k8")] == [1, 2, 4, 8]
    assert settings("teacher-base", folder).learn.loss.teacher == "base"
    assert settings("card", folder).learn.card
    forms = ("hybrid", "forward", "forward-old", "reverse", "forward-card", "forward-guided")
    found = [settings(name, folder).learn for name in forms]
    assert [each.loss.opd_form for each in found] == ["clipped", "forward", "forward", "reverse", "forward", "forward"]
    assert [each.loss.teacher for each in found] == ["old", "base", "old", "base", "base", "base"]
    assert [(each.card, each.loss.guidance) for each in found[-2:]] == [(True, 1.0), (True, 1.5)]
    assert ARMS["joint"].joint
    assert [ARMS[name].memory for name in ("memory", "memory-mem0", "memory-mem0-raw")] == ["notes", "mem0", "mem0-raw"]
