"""When updates may begin: idle, in a window, by hand; load, memory, battery (D4)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from apscheduler.triggers.cron import CronTrigger

from clawd.config import LearnSettings
from clawd.errors import ConfigError
from clawd.learner.due import MOST_COUNTED, Machine, Moment, machine_waits_for, schedule_waits_for, times_between
from clawd.learner.machine import look
from clawd.learner.window import CLOSED, OPENED, Window
from clawd.store import Store
from tests.learner.parts import World

AT_EASE = Machine(load=0.1, free_memory_mb=8000, battery_percent=None)
MOMENT = Moment(machine=AT_EASE, idle_s=None, window_open=False)
DAY_S = 86400.0
NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC).timestamp()


def test_what_each_choice_waits_for() -> None:
    assert schedule_waits_for(LearnSettings(), MOMENT) is None
    assert "clawd train --now" in (schedule_waits_for(LearnSettings(when="manual"), MOMENT) or "")
    window = LearnSettings(when="window", cron="30 3 * * 1-5")
    assert '"30 3 * * 1-5"' in (schedule_waits_for(window, MOMENT) or "")
    assert schedule_waits_for(window, replace(MOMENT, window_open=True)) is None
    idle = LearnSettings(when="idle", idle_minutes=5)
    assert schedule_waits_for(idle, MOMENT) is None  # nobody ever asked
    assert (
        schedule_waits_for(idle, replace(MOMENT, idle_s=299.9)) == '5 minutes without a request (learn.when = "idle")'
    )
    assert schedule_waits_for(idle, replace(MOMENT, idle_s=300.0)) is None


@pytest.mark.parametrize(
    ("settings", "machine", "names"),
    [
        ({"max_load": 2.0}, replace(AT_EASE, load=2.1), "learn.max_load"),
        ({"max_load": 2.0}, replace(AT_EASE, load=2.0), None),
        ({}, replace(AT_EASE, load=99.0), None),
        ({"min_free_memory_mb": 4000}, replace(AT_EASE, free_memory_mb=3999), "learn.min_free_memory_mb"),
        ({"min_free_memory_mb": 4000}, AT_EASE, None),
        ({}, replace(AT_EASE, battery_percent=29.0), "learn.min_battery_percent"),
        ({}, replace(AT_EASE, battery_percent=30.0), None),
        ({"min_battery_percent": 100}, replace(AT_EASE, battery_percent=99.0), "learn.min_battery_percent"),
        ({"min_battery_percent": 0}, replace(AT_EASE, battery_percent=1.0), None),
    ],
)
def test_limits_of_the_machine(settings: dict, machine: Machine, names: str | None) -> None:
    reason = machine_waits_for(LearnSettings(**settings), machine, asked=False)
    assert (reason is None) if names is None else (names in (reason or ""))


def test_a_person_who_asks_overrules_all_but_memory() -> None:
    strict = LearnSettings(max_load=1, min_free_memory_mb=4000)
    tired = Machine(load=50, free_memory_mb=5000, battery_percent=3)
    assert machine_waits_for(strict, tired, asked=True) is None
    assert machine_waits_for(strict, replace(tired, free_memory_mb=100), asked=True) is not None


def test_this_machine_can_be_looked_at() -> None:
    machine = look()
    assert machine.free_memory_mb > 0
    assert machine.load >= 0


def test_times_between() -> None:
    trigger = CronTrigger.from_crontab("0 2 * * *", timezone=UTC)

    def count(after: float, until: float) -> int:
        return times_between(trigger, datetime.fromtimestamp(after, UTC), datetime.fromtimestamp(until, UTC))

    assert count(NIGHT - 1, NIGHT) == 1
    assert count(NIGHT, NIGHT) == 0
    assert count(NIGHT, NIGHT + DAY_S - 1) == 0  # a time belongs to the stretch that ends with it
    assert count(NIGHT - 1, NIGHT + 3 * DAY_S) == 4
    assert count(0, 10000 * DAY_S) == MOST_COUNTED


class TestWindow:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        world = World(tmp_path)
        yield world.store
        world.store.close()

    def window(self, store: Store) -> Window:
        return Window(store, "0 2 * * *", timezone=UTC)

    def opened(self, store: Store) -> list[dict]:
        return [json.loads(row["detail"]) for row in store.events(OPENED)]

    def test_opens_at_its_time_and_closes_when_all_is_done(self, store: Store) -> None:
        window = self.window(store)
        for at in (NIGHT - 60, NIGHT - 1):
            window.look(at)
            assert not window.is_open
        window.look(NIGHT + 1)
        assert window.is_open
        window.close()
        window.look(NIGHT + 2)
        window.look(NIGHT + DAY_S - 1)
        assert not window.is_open
        assert [event["late"] for event in self.opened(store)] == [False]

    def test_a_clock_that_jumps_past_three_times_makes_one_window_and_says_so(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        """D4: sleep, suspend."""
        window = self.window(store)
        window.look(NIGHT - 60)
        with caplog.at_level(logging.WARNING, "clawd.learner.window"):
            window.look(NIGHT + 2 * DAY_S + 5 * 3600)
        assert "3 times of learn.cron have passed unseen: one window makes up for them" in caplog.text
        (event,) = self.opened(store)
        assert (event["times"], event["late"]) == (3, True)
        window.close()
        window.look(NIGHT + 2 * DAY_S + 6 * 3600)
        assert not window.is_open

    def test_times_that_passed_while_no_daemon_ran_are_made_up_for_once(self, store: Store) -> None:
        first = self.window(store)
        first.look(NIGHT - 60)
        second = self.window(store)
        second.look(NIGHT + DAY_S + 60)
        assert second.is_open
        second.close()
        third = self.window(store)
        third.look(NIGHT + DAY_S + 120)
        assert not third.is_open
        assert [event["times"] for event in self.opened(store)] == [2]

    def test_one_that_is_open_is_still_open_after_a_restart(self, store: Store) -> None:
        first = self.window(store)
        first.look(NIGHT - 60)
        first.look(NIGHT + 60)
        assert self.window(store).is_open

    def test_a_clock_that_is_set_back_doesnt_put_the_next_time_off(self, store: Store) -> None:
        window = self.window(store)
        window.look(NIGHT + 10 * DAY_S - 60)
        window.look(NIGHT - 60)
        assert not window.is_open
        window.look(NIGHT + 1)
        assert window.is_open

    def test_the_first_start_makes_up_for_nothing(self, store: Store) -> None:
        window = self.window(store)
        window.look(NIGHT + 60)
        assert not window.is_open
        assert len(store.events(CLOSED)) == 1


def test_a_wrong_cron_expression_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawd import config
    from clawd.paths import DataFolder

    monkeypatch.setenv("CLAWD_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"learn\.cron: .*no cron expression"):
        config.load(DataFolder(tmp_path), ["--learn.cron", "at night"])
    assert config.load(DataFolder(tmp_path), ["--learn.cron", "15 1 * * sun"]).learn.cron == "15 1 * * sun"


def test_a_clock_that_is_set_back_is_noticed_once() -> None:
    from clawd.learner.process import SetBackWatch

    readings = iter([100.0, 101.0, 100.5, 3700.0, 3701.0, 41.0, 42.0])
    watch = SetBackWatch(lambda: next(readings))
    assert [watch.was_set_back() for _ in range(6)] == [False, False, False, False, True, False]
