"""When an update may begin, as the settings say. Decides on what it is told: no clock, no store, no machine in here.

Each reason completes the sentence "the next update waits for …". It holds no figure that changes by itself: a reason is
written down when it changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from apscheduler.triggers.cron import CronTrigger

from clawd.config import LearnSettings

MOST_COUNTED = 1000
"""Of missed times: a clock that jumped by years is not worth counting through."""


@dataclass(frozen=True)
class Machine:
    load: float  # average of the last minute
    free_memory_mb: float
    battery_percent: float | None  # none: it runs on mains


@dataclass(frozen=True)
class Moment:
    machine: Machine
    idle_s: float | None  # since a person was last being answered; none: nobody ever was
    window_open: bool


def schedule_waits_for(settings: LearnSettings, moment: Moment) -> str | None:
    """What of `learn.when` stands against an update now; None: nothing."""
    if settings.when == "manual":
        return 'a person: `clawd train --now` (learn.when = "manual")'
    if settings.when == "window" and not moment.window_open:
        return f'the next time of learn.cron = "{settings.cron}" (learn.when = "window")'
    if settings.when == "idle" and moment.idle_s is not None and moment.idle_s < settings.idle_minutes * 60:
        return f'{settings.idle_minutes:g} minutes without a request (learn.when = "idle")'
    return None


def machine_waits_for(settings: LearnSettings, machine: Machine, *, asked: bool) -> str | None:
    """What of the machine stands against an update now; None: nothing.

    `asked`: a person wants it now. Then only want of memory counts: the update might end the server with it.
    """
    if settings.min_free_memory_mb is not None and machine.free_memory_mb < settings.min_free_memory_mb:
        return f"{settings.min_free_memory_mb} MB of free memory (learn.min_free_memory_mb)"
    if asked:
        return None
    if settings.max_load is not None and machine.load > settings.max_load:
        return f"a load average of {settings.max_load:g} or less (learn.max_load)"
    if machine.battery_percent is not None and machine.battery_percent < settings.min_battery_percent:
        return f"mains, or {settings.min_battery_percent} % of battery (learn.min_battery_percent)"
    return None


def times_between(trigger: CronTrigger, after: datetime, until: datetime) -> int:
    """How many times of the cron expression lie in (after, until]."""
    count = 0
    due = _next(trigger, after)
    while due is not None and due <= until and count < MOST_COUNTED:
        count += 1
        due = _next(trigger, due)
    return count


def _next(trigger: CronTrigger, after: datetime) -> datetime | None:
    # With a time that was due before, APScheduler counts on from the microsecond after it.
    due: datetime | None = trigger.get_next_fire_time(after, after)
    return due
