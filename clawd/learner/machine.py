"""The state of this machine, as far as updates depend on it."""

from __future__ import annotations

import os

import psutil

from clawd.learner.due import Machine


def look() -> Machine:
    battery = psutil.sensors_battery()  # none: there is none, or the system doesn't tell
    return Machine(
        load=os.getloadavg()[0],
        free_memory_mb=psutil.virtual_memory().available / 2**20,
        battery_percent=None if battery is None or battery.power_plugged else float(battery.percent),
    )
