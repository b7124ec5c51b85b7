"""The contract of a training backend: a job folder in, a result folder out, both plain files.

    <job>/job.json         `Job`
    <job>/samples.jsonl    one `Sample` a line
    <job>/result/          appears whole (written aside, then renamed) when the update has succeeded:
        adapter_config.json, adapter_model.safetensors   PEFT's own form
        adapter.gguf                                     what the server loads
        optimizer.safetensors                            AdamW's moments and step count
        manifest.json                                    `Manifest`
    <job>/outcome.json     `Outcome`: written last, whatever happened

A backend reads nothing else and writes nowhere else, apart from the cache folder that the job names. Importing this
loads no torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from clawd.config import LearnSettings

JOB_FILE = "job.json"
SAMPLES_FILE = "samples.jsonl"
RESULT_FOLDER = "result"
OUTCOME_FILE = "outcome.json"
MANIFEST_FILE = "manifest.json"
ADAPTER_GGUF = "adapter.gguf"
PEFT_WEIGHTS = "adapter_model.safetensors"
PEFT_CONFIG = "adapter_config.json"
OPTIMIZER_FILE = "optimizer.safetensors"


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class HintPrompt(Record):
    """One hint candidate `h` and the teacher's prompt: `s` with the hint at the end of the user's last own message."""

    hint_id: str
    text: str
    prompt_ids: list[int]


class Step(Record):
    """What an environment says of one step of one rollout of a task; the rollouts of a task are compared with it."""

    group: str  # the task whose rollouts are compared
    index: int = Field(ge=0)  # of the step within its rollout: steps of one index form a group
    outcome: float = Field(allow_inf_nan=False)  # o, of the whole rollout
    votes: list[Literal[-1, 0, 1]]  # r_j of this step, valid ones; empty: the outcome stands alone


class Sample(Record):
    """One turn to learn from. T = len(response_ids); the end token is included if it was sampled."""

    sample_id: str
    turn_id: str
    prompt_ids: list[int]  # as fed to the engine
    response_ids: list[int]  # (T,) as sampled
    rollout_logprobs: list[float]  # (T,) full vocabulary, temperature 1, under `rollout_version`
    rollout_version: str | None  # none: the bare base
    reward: Literal[-1, 0, 1] | None  # none: no score, which is not 0
    hints: list[HintPrompt]
    truncated: bool = False  # cut by its token limit: no end token was sampled
    task: Step | None = None  # none: personal, A = r; else the advantage is relative to its group, and `reward` is none

    @model_validator(mode="after")
    def _lengths_agree(self) -> Sample:
        if len(self.response_ids) != len(self.rollout_logprobs):
            raise ValueError(
                f"sample {self.sample_id}: {len(self.response_ids)} response ids but "
                f"{len(self.rollout_logprobs)} log-probabilities; unequal lengths are refused, never padded"
            )
        if not self.response_ids:
            raise ValueError(f"sample {self.sample_id}: empty response")
        return self

    @model_validator(mode="after")
    def _one_kind_of_reward(self) -> Sample:
        if self.task is not None and self.reward is not None:
            raise ValueError(f"sample {self.sample_id}: a reward and a task: which of them scores it?")
        return self

    @property
    def scored(self) -> bool:
        """Whether it has a GRPO term."""
        return self.reward is not None or self.task is not None


class Probes(Record):
    """Prompts that the gate puts to the new version. This update trains on none of them."""

    neutral: list[list[int]] = Field(default_factory=list)  # the bundled ones
    own: list[list[int]] = Field(default_factory=list)  # recent first messages of the adapter's users


class Job(Record):
    update_id: str
    adapter_id: str
    adapter_name: str
    number: int  # of the version that this update would make
    parent: Path | None  # folder of the version to start from; none: fresh LoRA weights
    base: Path  # the served GGUF
    base_fingerprint: str
    cache: Path  # folder for what can be made again (the dense base)
    settings: LearnSettings
    neutral: list[list[int]] = Field(default_factory=list)  # prompts at which nobody asked for a change; may be empty
    probes: Probes = Probes()  # the gate's; without any it judges by the held-back samples alone


class Manifest(Record):
    """What made this version. `metrics` holds scalars only, keyed `group/name`: `learner.train.update` lists them."""

    update_id: str
    adapter_id: str
    number: int
    parent: str | None
    base_fingerprint: str
    sample_ids: list[str]
    settings: dict[str, Any]
    metrics: dict[str, float]
    seconds: dict[str, float]  # by phase: load, score, train, validate, write
    sha256: dict[str, str]  # of each file of the result folder but this one
    reward_mean: float | None = None  # running mean over the adapter's updates; none: none of them had a reward
    grad_norm_mean: float | None = None  # running mean over the adapter's updates; none: no gradient yet
    versions: dict[str, str]  # of torch, transformers, peft, llama-cpp-python, gguf


class Outcome(Record):
    """How an update ended. `refused`: it must not be served; `failed`: it could not be computed."""

    state: Literal["staged", "refused", "failed"]
    reason: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    quarantined: dict[str, str] = Field(default_factory=dict)  # sample id → why it was left out of the batch
    held_back: list[str] = Field(default_factory=list)  # ids of samples that weren't trained: they wait again
    deferred: bool = False  # failed for want of memory, before anything was computed: that is no fault of its samples
    doubt: str | None = None  # the gate's objection to a staged version
    needs_word: bool = False  # staged, but not to be served before a person has agreed
    parent_fault: str | None = None  # what the gate found wrong with the version that serves now
