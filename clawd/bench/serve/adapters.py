"""Random adapters for the model under test, published as the learner publishes: claimed, in place, staged, rung for.

What an update trains is judged turns; here a person's feedback judges as many as there will be versions, so that each
version has its sample and its update in the store, and every state that a real one has passed through.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clawd.bench.serve.client import Client, story, wait_until
from clawd.bench.sse import COMPLETIONS
from clawd.config import LoraSettings
from clawd.doorbell import ring
from clawd.errors import BenchFailed
from clawd.learner.job import ADAPTER_GGUF
from clawd.model.fingerprint import fingerprint
from clawd.model.lora import LoraBase, LoraPair, read_lora_base, write_adapter_file
from clawd.paths import DataFolder
from clawd.server.wire import turn_of_response
from clawd.store import Store
from clawd.store.records import User

STRENGTH = 0.02  # of the random factors: the answers stay answers
TRIES = 3


def random_pairs(base: LoraBase, rank: int, seed: int) -> dict[str, LoraPair]:
    """A weak LoRA on every linear layer, of the size of a real one."""
    random = np.random.default_rng(seed)
    pairs = {}
    for name, (out_features, in_features) in base.linears.items():
        a = random.standard_normal((rank, in_features), np.float32) / in_features**0.5
        b = random.standard_normal((out_features, rank), np.float32) * STRENGTH / rank**0.5
        pairs[name] = LoraPair(a, b)
    return pairs


@dataclass(frozen=True)
class Swap:
    """From the moment when a version lay ready to the one when it answered; Unix seconds."""

    number: int
    published_at: float
    active_at: float


class Adapters:
    """Writes `count` files into the data folder; publishes any of them as often as asked, for any user."""

    def __init__(self, folder: DataFolder, store: Store, model: Path, count: int) -> None:
        self._folder = folder
        self._store = store
        self.judged: list[str] = []  # turn ids
        self._fingerprint = fingerprint(model, folder.cache)
        base = read_lora_base(model, self._fingerprint)
        lora = LoraSettings()
        self.files = [folder.cache / f"bench-{number}.gguf" for number in range(count)]
        for seed, file in enumerate(self.files):
            write_adapter_file(file, base, random_pairs(base, lora.rank, seed), lora.alpha)
        self._sha256 = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in self.files}

    def supply(self, client: Client, user: User, count: int) -> None:
        """Samples for `count` versions of this user's adapter: short answers that get a person's feedback.

        Raises:
            BenchFailed: the learner made no samples of them.
        """
        for _ in range(TRIES):
            missing = count - self._store.signals.waiting(user.adapter.id, self._fingerprint)
            if missing <= 0:
                return
            for _ in range(missing):
                body = {"model": client.model, "messages": story(), "max_tokens": 8}
                answer = client.http.post(COMPLETIONS, json=body).raise_for_status().json()
                self.judged.append(turn_of_response(answer["id"]))
                feedback = {"response_id": answer["id"], "score": 1}
                client.http.post("/clawd/v1/feedback", json=feedback).raise_for_status()
            wait_until(lambda: not self._store.turns.to_judge(1), 60)
        raise BenchFailed("The model's answers are too short to make samples of.")

    def publish(self, user: User, file: Path) -> Swap:
        """Have `file` answer as the user's next version; returns when it does.

        Raises:
            BenchFailed: the server refused it.
        """
        updates = self._store.updates
        update = updates.claim(user.adapter.id, self._fingerprint, 1, {})
        assert update is not None, "`supply` comes first"
        target = self._folder.adapters / update.adapter_id / f"v{update.number:04d}"
        target.mkdir(mode=0o700, parents=True)
        (target / ADAPTER_GGUF).hardlink_to(file)
        published_at = time.time()
        version = updates.stage(update.id, target, self._sha256[file], self._fingerprint, {}, {})
        ring(self._folder.server_bell)
        wait_until(lambda: updates.version(version.id).state != "staged")
        version = updates.version(version.id)
        if version.activated_at is None:
            raise BenchFailed(f"The server refused an adapter: {updates.get(update.id).reason}.")
        return Swap(version.number, published_at, version.activated_at)
