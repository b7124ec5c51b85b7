"""Whole adapter versions as an update leaves them: real PEFT files, a real GGUF, optimiser state and manifest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from clawd.learner import job as contract
from clawd.learner.job import Manifest
from clawd.model.fingerprint import fingerprint
from clawd.model.lora import LoraBase, LoraPair, read_lora_base, write_adapter_file
from clawd.paths import DataFolder
from clawd.store import Store
from clawd.store.records import User, Version
from tests.store.world import World

RANK = 4
MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def base_of(model: Path, cache: Path) -> LoraBase:
    return read_lora_base(model, fingerprint(model, cache))


def module_of(tensor: str) -> str:
    """The Hugging Face name of a linear layer of a llama."""
    _, block, name, _ = tensor.split(".")
    return f"model.layers.{block}.{MODULES[name]}"


def write_version(
    folder: Path,
    base: LoraBase,
    seed: int,
    *,
    update_id: str = "u",
    number: int = 1,
    strength: float = 1.0,
    alpha: int = RANK,
) -> Manifest:
    """Fill `folder` (made if missing) with a version's files."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    pairs, weights = {}, {}
    for name, (out, into) in base.linears.items():
        a = random.standard_normal((RANK, into), np.float32) / into**0.5
        b = random.standard_normal((out, RANK), np.float32) * strength * 0.3 / RANK**0.5
        pairs[name] = LoraPair(a, b)
        weights[f"base_model.model.{module_of(name)}.lora_A.weight"] = a
        weights[f"base_model.model.{module_of(name)}.lora_B.weight"] = b
    write_adapter_file(folder / contract.ADAPTER_GGUF, base, pairs, alpha=alpha)
    save_file(weights, folder / contract.PEFT_WEIGHTS)
    (folder / contract.PEFT_CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": alpha}))
    save_file({"steps": np.zeros(1, np.float32)}, folder / contract.OPTIMIZER_FILE)
    manifest = Manifest(
        update_id=update_id,
        adapter_id="a",
        number=number,
        parent=None,
        base_fingerprint=base.fingerprint,
        sample_ids=[],
        settings={},
        metrics={"effect/kl_old": 0.01 * number, "validate/trained_effect_kl": 0.02 * number},
        seconds={},
        sha256={path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())},
        versions={},
    )
    (folder / contract.MANIFEST_FILE).write_text(manifest.model_dump_json())
    return manifest


def trained(
    data: DataFolder, store: Store, user: User, base: LoraBase, seed: int, samples: int = 1, doubt: str | None = None
) -> Version:
    """A version that an update of the user's adapter has made: staged, as the learner leaves it.

    With a `doubt` of the gate it waits for a person's word.
    """
    world = World(store)
    for _ in range(samples):
        turn = world.turn(world.session(user=user), user=user, base=base.fingerprint)
        assert store.turns.give_next_state(turn, turn, [{"role": "user", "content": "thanks"}])
        store.signals.settle(turn, [], 1)
    update = store.updates.claim(user.adapter.id, base.fingerprint, samples, {})
    assert update is not None
    folder = data.adapters / user.adapter.id / f"v{update.number:04d}"
    manifest = write_version(folder, base, seed, update_id=update.id, number=update.number)
    sha256 = manifest.sha256[contract.ADAPTER_GGUF]
    return store.updates.stage(
        update.id, folder, sha256, base.fingerprint, manifest.metrics, {}, (), doubt, doubt is not None
    )


def served(data: DataFolder, store: Store, user: User, base: LoraBase, seed: int) -> Version:
    """One that serves, as far as the store knows."""
    version = trained(data, store, user, base, seed)
    store.updates.activate(version.id)
    return store.updates.version(version.id)
