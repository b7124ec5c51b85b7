"""How long `clawd start` takes until the first answer, and how much memory the server then needs.

Each round starts a real daemon on an empty folder of its own and stops it. Memory is the server process's resident set
less the model file's size: the file is mapped, and its pages are shared with whoever else maps it.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from clawd.bench.daemon import throw_away_daemon
from clawd.bench.report import Goal, Report
from clawd.daemon import record
from clawd.paths import DataFolder

MEMORY_GOAL_MB = 200.0
LONG_PROMPT_WORDS = 3000


def run(*, quick: bool = False, command: str = "clawd bench start") -> Report:
    """Measure with the embedded model. `quick`: one round."""
    rows = [_round(number) for number in range(1 if quick else 3)]
    ready = statistics.median(row["server_mb_above_model"] for row in rows)
    return Report("start", command, rows, [Goal("server_mb_above_model", ready, MEMORY_GOAL_MB, "lower")])


def ready_s() -> float:
    """Seconds from `clawd start` to ready, once, on an empty folder with the embedded model."""
    with throw_away_daemon() as daemon:
        return daemon.ready_s


def _round(number: int) -> dict[str, Any]:
    with throw_away_daemon() as daemon, httpx.Client(base_url=daemon.url, timeout=300) as client:
        _chat(client, "Say hello.")
        answered_s = time.monotonic() - daemon.began_at
        ready_mb = _server_mb_above_model(daemon.folder, client)
        _chat(client, "word " * LONG_PROMPT_WORDS)
        return {
            "round": number + 1,
            "ready_s": round(daemon.ready_s, 2),
            "first_answer_s": round(answered_s, 2),
            "server_mb_above_model": ready_mb,
            "server_mb_above_model_after_a_long_prompt": _server_mb_above_model(daemon.folder, client),
        }


def _chat(client: httpx.Client, text: str) -> None:
    body = {"model": "clawd", "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    client.post("/v1/chat/completions", json=body).raise_for_status()


def _server_mb_above_model(folder: DataFolder, client: httpx.Client) -> float:
    """Resident megabytes (10⁶ bytes) of the server process beyond the size of the model file."""
    daemon = record.running(folder)
    assert daemon is not None
    (pid,) = (process.pid for process in daemon.processes if process.name == "server")
    model = Path(client.get("/clawd/v1/status").json()["model"]["path"])
    return round((psutil.Process(pid).memory_info().rss - model.stat().st_size) / 1e6, 1)
