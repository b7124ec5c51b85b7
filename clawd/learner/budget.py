"""How much memory an update takes, computed from the model's shape and the settings, part by part.

Pure arithmetic: no torch, no file, no machine, so that the learner may ask before it starts a child. `clawd bench
update` measures it against the trainer's peak on a CPU. For a GPU it is computed and was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from clawd.config import LearnSettings
from clawd.errors import NoRoom
from clawd.model.shape import ModelShape

MIB = 2**20
WIDTH = {"float32": 4, "bfloat16": 2}
NF4_WIDTH = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes a weight: itself, its block's scale, the scale of 256 scales
MOMENTS = 2  # AdamW's
CHUNK_LOGITS, LEAST_ROWS = 1 << 23, 128
"""float32 logits that the trainer makes at a time, 32 MiB; with a large vocabulary more, as each chunk reads the whole
head. Smaller ones were no slower where the vocabulary has 49,152 entries (`docs/results.md`)."""
QUERY_BLOCK = 128  # queries whose scores it holds at a time
PROCESS_BYTES = {"cpu": 500e6, "cuda": 600e6}
"""Without the model: Python with torch, transformers and peft, and what they load while they work; on a GPU CUDA's
context, kernels, libraries. The first was measured with a model of next to no size, the second is an allowance."""
SLACK = {"cpu": 0.3, "cuda": 0.15}
"""Of what comes and goes: an allocator's blocks that are free and fit nothing. glibc's heap was measured: it grows from
one micro-batch to the next, though they get smaller. That of a GPU is an allowance."""

NOT_ENOUGH = "not enough memory for an update"

Kind = Literal["cpu", "cuda"]
Format = Literal["bfloat16", "float32"]


@dataclass(frozen=True)
class Place:
    """A device that an update may be computed on."""

    name: str  # cpu, cuda:N
    free_mb: float  # 2²⁰ bytes

    @property
    def kind(self) -> Kind:
        return "cpu" if self.name == "cpu" else "cuda"


@dataclass(frozen=True)
class Work:
    """What of a batch counts: its largest forward pass."""

    tokens: int  # of the longest sample that is trained
    hints: int = 0  # most hints of one sample


@dataclass(frozen=True)
class Form:
    """How an update holds what it must."""

    kind: Kind
    dtype: Format
    quantise: Literal["none", "nf4"]
    checkpointing: bool


@dataclass(frozen=True)
class Budget:
    """Bytes by part at the peak."""

    form: Form
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def total_mb(self) -> int:
        """2²⁰ bytes, rounded up."""
        return -(-self.total // MIB)


def compute(shape: ModelShape, work: Work, settings: LearnSettings, form: Form) -> Budget:
    """The peak of an update: scoring with its graph, or a later step, whichever holds more."""
    tokens = max(work.tokens, settings.micro_batch_tokens)
    kept = _kept(shape, settings.lora.rank, form, tokens)
    passing = {
        "activations": kept,
        "layer at work": _working(shape, settings.lora.rank, form, tokens),
        "logits": _logits(shape, tokens),
        "teachers": _teachers(shape, form, tokens, work.hints),
    }
    parts = {
        "process": PROCESS_BYTES[form.kind],
        **_weights(shape, form),
        **_lora(shape, settings, form),
        **passing,
        "slack": SLACK[form.kind] * sum(passing.values()),
    }
    return Budget(form, {name: round(size) for name, size in parts.items()})


def _weights(shape: ModelShape, form: Form) -> dict[str, float]:
    width = WIDTH[form.dtype]
    dense = sum(out * wide for out, wide in shape.linears.values())
    table = shape.vocabulary * shape.hidden
    return {
        "blocks": shape.layers * dense * (NF4_WIDTH if form.quantise == "nf4" else width),
        "embedding": table * width * (1 if shape.tied else 2),
        "float32 head": 0 if form.dtype == "float32" else table * 4,  # beside float32 it is the embedding or the head
    }


def _lora(shape: ModelShape, settings: LearnSettings, form: Form) -> dict[str, float]:
    numbers = shape.layers * settings.lora.rank * sum(out + wide for out, wide in shape.linears.values())
    before = 0 if settings.kl_target is None else 2  # the weights before a step, and the step
    rounded = 0 if form.checkpointing else numbers * WIDTH[form.dtype]  # kept with the graph
    return {"LoRA, gradients": numbers * 4 * (2 + before) + rounded, "AdamW": numbers * 4 * MOMENTS}


def _kept(shape: ModelShape, rank: int, form: Form, tokens: int) -> float:
    """For the backward pass: every layer's own, or its input alone."""
    if form.checkpointing:
        return tokens * shape.layers * shape.hidden * 4
    return tokens * shape.layers * _per_token(shape, rank, form)


def _per_token(shape: ModelShape, rank: int, form: Form) -> float:
    """Bytes that one layer keeps of one token (`train/norm.py`, `attention.py`, `gated.py`, `policy.py`)."""
    width = WIDTH[form.dtype]
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    norms = 2 * shape.hidden * (4 + width) + 2 * 4  # each: its input in float32, its output, one number
    attention = (2 * queries + 2 * keys) * width  # q, k, v and what goes into the last product
    if shape.head_norms:
        attention += (queries + keys) * width + (shape.heads + shape.kv_heads) * 4
    return norms + attention + 3 * shape.inner * width + 7 * rank * width


def _working(shape: ModelShape, rank: int, form: Form, tokens: int) -> float:
    """While one layer is computed, forwards or backwards."""
    width = WIDTH[form.dtype]
    scores = 3 * 4 * shape.heads * min(QUERY_BLOCK, tokens) * tokens
    attention = scores + 4 * tokens * (2 * shape.heads + 4 * shape.kv_heads) * shape.head_size
    gated = tokens * (4 * shape.inner + 2 * shape.hidden) * width
    again = tokens * _per_token(shape, rank, form) if form.checkpointing else 0
    unpacked = 0 if form.quantise == "none" else max(out * wide for out, wide in shape.linears.values()) * width
    return again + unpacked + max(attention, gated)


def _logits(shape: ModelShape, tokens: int) -> float:
    """Three copies of a chunk, while entropies are read; for each token its state, and the gradient of its state."""
    rows = min(tokens, max(CHUNK_LOGITS // shape.vocabulary, LEAST_ROWS))
    return 3 * rows * shape.vocabulary * 4 + 3 * tokens * shape.hidden * 4


def _teachers(shape: ModelShape, form: Form, tokens: int, hints: int) -> float:
    """Keys and values of a sample's prompt with each of its hints; the student's own belong to its activations."""
    keys = 2 * shape.kv_heads * shape.head_size * WIDTH[form.dtype]
    lent = tokens * keys * shape.layers if form.checkpointing and hints else 0
    return hints * tokens * keys * shape.layers + lent


@dataclass(frozen=True)
class Plan:
    """Where and how an update is computed."""

    place: Place
    budget: Budget


def choose(shape: ModelShape, work: Work, settings: LearnSettings, places: Sequence[tuple[Place, Format]]) -> Plan:
    """The first place that has room, in the quickest form that fits there.

    `places`: best first, each with the number format that the base has there.

    Raises:
        NoRoom: none has.
    """
    for place, dtype in places:
        for form in _forms(settings, place.kind, dtype):
            budget = compute(shape, work, settings, form)
            if budget.total_mb <= limit_mb(place, settings):
                return Plan(place, budget)
    raise NoRoom(no_room(shape, work, settings, *places[-1]))


def limit_mb(place: Place, settings: LearnSettings) -> float:
    """What an update may take there, in 2²⁰ bytes."""
    return min(place.free_mb, settings.max_memory_mb or place.free_mb)


def smallest(shape: ModelShape, work: Work, settings: LearnSettings, kind: Kind, dtype: Format) -> Budget:
    """Of the forms that the settings leave open."""
    found = (compute(shape, work, settings, form) for form in _forms(settings, kind, dtype))
    return min(found, key=lambda budget: budget.total)


def no_room(shape: ModelShape, work: Work, settings: LearnSettings, place: Place, dtype: Format) -> str:
    """What is needed and what would need less. No figure of what is free: that one changes all the time."""
    need = smallest(shape, work, settings, place.kind, dtype)
    less = [
        f"{text} ({_rounded_mb(other)} MB)"
        for text, other in remedies(shape, work, settings, place.kind, dtype)
        if other.total < need.total
    ]
    bound = "" if settings.max_memory_mb is None else f" (learn.max_memory_mb = {settings.max_memory_mb})"
    return (
        f"{NOT_ENOUGH}: about {_rounded_mb(need)} MB free on {place.name} are needed{bound} with a longest sample of "
        f"{work.tokens} tokens. What would need less: {', '.join(less) or 'a smaller model'}"
    )


def remedies(
    shape: ModelShape, work: Work, settings: LearnSettings, kind: Kind, dtype: Format
) -> list[tuple[str, Budget]]:
    """One change at a time, and what an update would need then."""
    rank, shorter = settings.lora.rank // 2, max(32, work.tokens // 2)
    changes: list[tuple[str, dict[str, object], Work]] = []
    if settings.checkpointing == "never":
        changes.append(("learn.checkpointing = auto", {"checkpointing": "auto"}, work))
    if settings.quantise == "none":
        changes.append(("learn.quantise = nf4", {"quantise": "nf4"}, work))
    if settings.micro_batch_tokens > work.tokens:
        batch = max(32, work.tokens)
        changes.append((f"learn.micro_batch_tokens = {batch}", {"micro_batch_tokens": batch}, work))
    sizes = {"max_sample_tokens": shorter, "micro_batch_tokens": min(shorter, settings.micro_batch_tokens)}
    both = "learn.max_sample_tokens and learn.micro_batch_tokens"
    changes.append((f"{both} = {shorter}, without longer samples", dict(sizes), replace(work, tokens=shorter)))
    if rank > 0:
        lora = settings.lora.model_copy(update={"rank": rank})
        changes.append((f"learn.lora.rank = {rank}, with a new adapter", {"lora": lora}, work))
    return [
        (text, smallest(shape, changed, settings.model_copy(update=dict(update)), kind, dtype))
        for text, update, changed in changes
    ]


def _rounded_mb(budget: Budget) -> int:
    return -(-budget.total_mb // 100) * 100


def _forms(settings: LearnSettings, kind: Kind, dtype: Format) -> list[Form]:
    """Those that the settings leave open, quickest first."""
    ways = {"never": [False], "always": [True], "auto": [False, True]}[settings.checkpointing]
    return [Form(kind, dtype, settings.quantise, way) for way in ways]
