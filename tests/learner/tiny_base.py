"""A tiny random model as GGUF, for each architecture that can be trained, and jobs on it. No vocabulary: ids only."""

from pathlib import Path

import gguf
import numpy as np

from clawd.config import LearnSettings
from clawd.learner.job import JOB_FILE, SAMPLES_FILE, HintPrompt, Job, Sample

HIDDEN, INNER, HEADS, KV_HEADS, BLOCKS, VOCABULARY = 64, 96, 4, 2, 2, 128
HEAD = {"llama": HIDDEN // HEADS, "qwen2": HIDDEN // HEADS, "qwen3": 128}  # qwen3's is not in the file for transformers
FINGERPRINT = "5" * 64


def write_tiny_base(path: Path, architecture: str = "llama", seed: int = 0) -> Path:
    """Weights large enough that attention matters: a wrong order of its rows shows in the logits."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(BLOCKS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    head = HEAD.get(architecture, HIDDEN // HEADS)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(head)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")
    for name, shape in _shapes(architecture, head).items():
        values = np.ones(shape) if name.endswith("norm.weight") else random.normal(scale=shape[-1] ** -0.5, size=shape)
        scale = 3.0 if ".attn_q." in name or ".attn_k." in name else 1.0
        writer.add_tensor(name, (values * scale).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes(architecture: str, head: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCABULARY, HIDDEN),
        "output.weight": (VOCABULARY, HIDDEN),
        "output_norm.weight": (HIDDEN,),
    }
    wide, narrow = HEADS * head, KV_HEADS * head
    for number in range(BLOCKS):
        block = {
            "attn_norm.weight": (HIDDEN,),
            "attn_q.weight": (wide, HIDDEN),
            "attn_k.weight": (narrow, HIDDEN),
            "attn_v.weight": (narrow, HIDDEN),
            "attn_output.weight": (HIDDEN, wide),
            "ffn_norm.weight": (HIDDEN,),
            "ffn_gate.weight": (INNER, HIDDEN),
            "ffn_up.weight": (INNER, HIDDEN),
            "ffn_down.weight": (HIDDEN, INNER),
        }
        if architecture == "qwen2":
            block |= {"attn_q.bias": (wide,), "attn_k.bias": (narrow,), "attn_v.bias": (narrow,)}
        if architecture == "qwen3":
            block |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        shapes |= {f"blk.{number}.{name}": shape for name, shape in block.items()}
    return shapes


def make_sample(number: int, reward: int | None = 1, hints: int = 0, prompt: int = 12, response: int = 9) -> Sample:
    random = np.random.default_rng(number)
    prompt_ids = random.integers(1, VOCABULARY, prompt).tolist()
    return Sample(
        sample_id=f"sample-{number}",
        turn_id=f"turn-{number}",
        prompt_ids=prompt_ids,
        response_ids=random.integers(1, VOCABULARY, response).tolist(),
        rollout_logprobs=random.uniform(-6, -3, response).tolist(),
        rollout_version=None,
        reward=reward,
        hints=[
            HintPrompt(
                hint_id=f"hint-{number}-{h}", text="hint", prompt_ids=[*prompt_ids, *random.integers(1, 99, 4).tolist()]
            )
            for h in range(hints)
        ],
    )


def mixed_samples() -> list[Sample]:
    """Ragged: scored, hinted, both; with no, one and two hints."""
    return [
        make_sample(1, reward=1, prompt=20, response=11),
        make_sample(2, reward=-1, hints=2, prompt=7, response=5),
        make_sample(3, reward=None, hints=1, prompt=15, response=8),
        make_sample(4, reward=0, hints=2, prompt=9, response=13),
        make_sample(5, reward=-1, prompt=3, response=2),
    ]


def write_job(
    folder: Path, base: Path, cache: Path, samples: list[Sample], settings: LearnSettings, parent: Path | None = None
) -> Path:
    folder.mkdir(parents=True)
    job = Job(
        update_id="update-1",
        adapter_id="adapter-1",
        adapter_name="default",
        number=1 if parent is None else 2,
        parent=parent,
        base=base,
        base_fingerprint=FINGERPRINT,
        cache=cache,
        settings=settings,
    )
    (folder / JOB_FILE).write_text(job.model_dump_json())
    (folder / SAMPLES_FILE).write_text("\n".join(sample.model_dump_json() for sample in samples) + "\n")
    return folder
