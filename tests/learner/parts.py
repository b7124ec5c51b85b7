"""Small true parts for the tests of the learner: a data folder with turns, a backend, a judge endpoint."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from clawd.config import LearnSettings
from clawd.learner import job as contract
from clawd.learner.due import Machine
from clawd.learner.job import Job, Manifest, Outcome, Sample
from clawd.learner.jobs import ServedModel
from clawd.learner.publish import Publisher
from clawd.learner.schedule import Deps, Updates
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import NewTurn, Response, User, Vote

BASE = "b" * 64
ANSWER = "Bread is made of flour, water, salt and yeast."


def render(messages: list[dict], tools: list | None, parameters: dict) -> list[int]:
    """Every character a token, so that prompts can be read."""
    return [ord(char) for message in messages for char in f"<{message['role']}>{message['content']}"] + [ord("|")]


def words(ids: Sequence[int]) -> str:
    return "".join(map(chr, ids))


class World:
    """A data folder whose store holds what the tests say in one line each."""

    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root)
        self.data.create()
        self.store = Store(self.data.database)
        self.user: User = self.store.people.named("default")
        self.base = BASE  # what answers the turns that are made from now on

    def turn(
        self,
        reply: str | list[dict] | None = None,
        *,
        asked: str = "How do I bake bread?",
        answer: str = ANSWER,
        ids: Sequence[int] | None = None,
        finish: str = "stop",
        user: User | None = None,
        adapter: bool = True,
    ) -> str:
        """A finished turn; with `reply` (a user's text, or messages) it waits for the judge."""
        who = user or self.user
        messages = [{"role": "user", "content": asked}]
        store = self.store
        turn_id = store.turns.begin(
            NewTurn(
                session_id=store.sessions.open(who.id, None, "new").id,
                user_id=who.id,
                adapter_id=who.adapter.id if adapter else None,
                version_id=None,
                base_fingerprint=self.base,
                kind="main",
                kind_evidence="default",
                prompt_ids=tuple(render(messages, None, {})),
                messages=messages,
                request_hash="r",
            )
        )
        sampled = tuple([*map(ord, answer), 2] if ids is None else ids)
        store.turns.finish(turn_id, Response(sampled, tuple(-0.5 for _ in sampled), answer, finish, "c"))
        if reply is not None:
            state = [{"role": "user", "content": reply}] if isinstance(reply, str) else reply
            assert store.turns.give_next_state(turn_id, turn_id, state)
        return turn_id

    def samples(self, count: int, user: User | None = None, hint: str | None = None) -> list[str]:
        """Waiting samples with reward -1."""
        made = []
        for _ in range(count):
            turn_id = self.turn("No.", user=user)
            made.append(self.store.signals.settle(turn_id, [Vote("rules", -1, "no", hint)], -1))
        return made

    def state(self, turn_id: str) -> tuple[str, str | None]:
        turn = self.store.turns.get(turn_id)
        return turn.state, turn.reason

    def updates(self, backend: ScriptedBackend, served: ServedModel | None = None, **settings: Any) -> Updates:
        """The update loop on this folder. Its clocks and its machine are the backend's."""
        model = served or ServedModel(self.data.root / "base.gguf", BASE, "base")
        publisher = Publisher(self.data, self.store, lambda: backend.rings.append("server"))
        chosen = LearnSettings(**{"samples_per_update": 2, **settings})
        deps = Deps(
            self.data,
            self.store,
            chosen,
            model,
            render,
            backend,
            publisher,
            clock=lambda: backend.now,
            wall=lambda: backend.wall,
            look_at_machine=lambda: backend.machine,
        )
        return Updates(deps)

    def events(self, kind: str) -> list[dict]:
        return [json.loads(row["detail"]) for row in self.store.events(kind)]


class ScriptedUpdate:
    def __init__(self) -> None:
        self.ended: str | None = None
        self.cancelled = False

    def poll(self) -> str | None:
        return self.ended

    def cancel(self) -> None:
        self.cancelled = True
        self.ended = self.ended or "signal SIGTERM"


class ScriptedBackend:
    """A backend by the job contract whose updates end when the test says so, with the result that it says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wall = time.time()
        self.machine = Machine(load=0.1, free_memory_mb=8000.0, battery_percent=None)
        self.jobs: list[Path] = []
        self.runs: list[ScriptedUpdate] = []
        self.rings: list[str] = []
        self.prepared: list[tuple[Path, str, Path]] = []
        self.problem: str | None = None
        self.refuses_to_start = False

    def unavailable(self) -> str | None:
        return self.problem

    def prepare(self, base: Path, fingerprint: str, cache: Path) -> None:
        self.prepared.append((base, fingerprint, cache))

    def start(self, job: Path) -> ScriptedUpdate:
        if self.refuses_to_start:
            raise OSError("no memory")
        self.jobs.append(job)
        self.runs.append(ScriptedUpdate())
        return self.runs[-1]

    def job(self) -> Job:
        return Job.model_validate_json((self.jobs[-1] / contract.JOB_FILE).read_text())

    def samples(self) -> list[Sample]:
        lines = (self.jobs[-1] / contract.SAMPLES_FILE).read_text().splitlines()
        return [Sample.model_validate_json(line) for line in lines]

    def succeed(self, quarantined: dict[str, str] | None = None) -> None:
        write_result(self.jobs[-1])
        self.end(Outcome(state="staged", metrics={"train/loss": 0.25}, quarantined=quarantined or {}))

    def end(self, outcome: Outcome | None, how: str = "exit status 0") -> None:
        if outcome is not None:
            (self.jobs[-1] / contract.OUTCOME_FILE).write_text(outcome.model_dump_json())
        self.runs[-1].ended = how


def write_result(folder: Path) -> None:
    """A whole result folder for the job in `folder`."""
    job = Job.model_validate_json((folder / contract.JOB_FILE).read_text())
    result = folder / contract.RESULT_FOLDER
    result.mkdir()
    names = (contract.ADAPTER_GGUF, contract.PEFT_WEIGHTS, contract.PEFT_CONFIG, contract.OPTIMIZER_FILE)
    for name in names:
        (result / name).write_text(f"{name} of {job.update_id}")
    manifest = Manifest(
        update_id=job.update_id,
        adapter_id=job.adapter_id,
        number=job.number,
        parent=str(job.parent) if job.parent else None,
        base_fingerprint=job.base_fingerprint,
        sample_ids=[],
        settings=job.settings.model_dump(mode="json"),
        metrics={"train/loss": 0.25},
        seconds={"train": 1.0},
        sha256={name: hashlib.sha256((result / name).read_bytes()).hexdigest() for name in names},
        versions={},
    )
    (result / contract.MANIFEST_FILE).write_text(manifest.model_dump_json())


Answer = Callable[[dict], tuple[int, Any]]
"""From a request's body to status and answer: a text is wrapped as a completion, anything else is sent as JSON."""


def verdict(score: int, hint: str | None = None, reason: str = "as seen") -> str:
    marked = f"[HINT_START] {hint} [HINT_END]" if hint else None
    return json.dumps({"reason": reason, "score": score, "correction": hint is not None, "hint": marked})


class ScriptedJudge:
    """An OpenAI-compatible endpoint on 127.0.0.1 that answers by a script: a list of texts, in turn, or a function."""

    def __init__(self, script: Sequence[str] | Answer) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self._script = script
        self._lock = threading.Lock()
        self.hang_s = 0.0
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = judge._answer(body, dict(self.headers), self.path)
                data = json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the asker has gone

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _answer(self, body: dict, headers: dict[str, str], path: str) -> tuple[int, Any]:
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            if path != "/v1/chat/completions":
                return 404, {"error": {"message": path}}
            if callable(self._script):
                status, answer = self._script(body)
            else:
                status, answer = 200, self._script[(len(self.requests) - 1) % len(self._script)]
        if self.hang_s:
            time.sleep(self.hang_s)
        return status, completion(answer) if isinstance(answer, str) else answer

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> ScriptedJudge:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def completion(text: str, finish_reason: str = "stop") -> dict:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]}
