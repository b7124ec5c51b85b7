"""The settings: one field = one TOML key = one environment variable = one command-line flag = one sentence.

Precedence, strongest first: flags (`--server.port 31000`), environment (`CLAWD_SERVER__PORT=31000`), the TOML file, the
defaults below. A key that isn't here is an error wherever it comes from. `none` unsets an optional one. Importing this
loads neither torch nor llama.cpp.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from clawd.errors import ConfigError
from clawd.paths import DataFolder, write_privately

ENV_PREFIX = "CLAWD_"
MOST_CELLS = 2**24  # far beyond any model; llama.cpp would wrap larger ones around
NOT_SETTINGS = {"CLAWD_HOME"}  # read by DataFolder: says where the TOML file is, so it can't stand in it


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _none_in_words(cls, value: object, info: ValidationInfo) -> object:
        """TOML, the environment and flags have no null: `none` is the word for it where a setting may have none."""
        field = cls.model_fields[info.field_name or ""]
        return None if value == "none" and NoneType in get_args(field.annotation) else value


class ModelSettings(Section):
    path: Path | None = None
    """GGUF file to serve; none: the embedded SmolLM2-135M-Instruct."""
    name: str | None = None
    """Name of the bare base model in the API; none: the file's name without `.gguf`."""
    reply_format: Literal["hermes", "qwen_coder", "llama3", "mistral", "gemma", "harmony"] | None = None
    """How the model writes tool calls and reasoning; none: told from its chat template."""
    context: Annotated[int, Field(ge=256, le=MOST_CELLS)] | None = None
    """Longest conversation in tokens; none: what the model was trained for."""
    kv_cells: Annotated[int, Field(ge=256, le=MOST_CELLS)] | None = None
    """Tokens that all running and remembered conversations may hold together; none: the context."""
    kv_type: Literal["f16", "q8_0"] = "f16"
    """Number format of the key-value cache; q8_0 needs half the memory."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads of llama.cpp; none: one per physical core."""
    gpu_layers: Annotated[int, Field(ge=-1)] = -1
    """Layers kept on a GPU if the binding was built for one; -1: all."""


class ServerSettings(Section):
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 30000
    """Port to listen on; 0: any free one, told by `clawd status`."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names of this machine that a `Host` or `Origin` header may carry on loopback."""
    max_body_mb: Annotated[int, Field(ge=1)] = 16
    """Largest request body, in megabytes."""
    max_waiting: Annotated[int, Field(ge=0)] = 256
    """Requests that may wait for a place; further ones are asked to come back (429)."""
    max_waiting_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of `max_waiting` that one user may take, so that nobody fills the queue for all."""
    max_wait_s: Annotated[float, Field(gt=0)] | None = 600.0
    """Seconds that a person's request waits to be begun before it is told to come back (503); none: for ever."""
    max_request_s: Annotated[float, Field(gt=0)] | None = None
    """Seconds of a request in all; then its answer ends, as one cut by its length does. None: as long as it takes."""
    max_running: Annotated[int, Field(ge=1, le=128)] = 8
    """Requests that are decoded together; further ones wait."""
    remembered: Annotated[int, Field(ge=0, le=120)] = 24
    """Conversations whose key-value state is kept for their next turn, least recently used out first."""
    prompt_chunk: Annotated[int, Field(ge=16, le=4096)] | None = None
    """Prompt tokens read in a step when nobody else is answered; none: 64 on a CPU, 512 on a GPU."""
    prompt_chunk_shared: Annotated[int, Field(ge=8, le=4096)] = 32
    """Prompt tokens read in one step while others are being answered: small keeps their tokens flowing."""
    adapter_slice: Annotated[int, Field(ge=1, le=256)] = 8
    """Steps that one adapter version gets before another one's turn; changing adapters costs a graph rebuild."""
    adapters_loaded: Annotated[int, Field(ge=1)] = 16
    """Adapter versions kept in memory beside the active ones; further ones are loaded when asked for."""
    saved_states_mb: Annotated[int, Field(ge=0)] = 512
    """Disk space for the key-value states of long conversations, which a restart then needn't read again; 0: none."""
    default_max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Longest answer when a request names no limit; none: what the context still holds."""
    default_temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Sampling temperature when a request names none."""
    default_top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Nucleus mass when a request names none."""


class SessionSettings(Section):
    idle_close_s: Annotated[float, Field(gt=0)] = 6 * 3600.0
    """Seconds without a request after which a session is closed and its last turn has no next state."""


class JudgeSettings(Section):
    kind: Literal["rules", "llm"] = "rules"
    """`rules` reads reply texts by fixed rules; `llm` asks a model and keeps the rules' vetoes."""
    base_url: str | None = None
    """OpenAI-compatible endpoint of the judge; none: this very server."""
    model: str | None = None
    """Model name to ask; none: the bare base model of this server."""
    api_key: SecretStr | None = None
    """Key for the judge's endpoint."""
    votes: Annotated[int, Field(ge=1, le=15)] = 3
    """Independent votes per turn (m)."""
    timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Time limit of one vote."""
    attempts: Annotated[int, Field(ge=1)] = 3
    """Tries for one valid vote before it counts as no vote."""
    max_tokens: Annotated[int, Field(ge=64)] = 400
    """Longest judge answer; a cut one is no vote."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.6
    """Sampling temperature of the votes, so that they are independent."""


class LoraSettings(Section):
    rank: Annotated[int, Field(ge=1, le=256)] = 16
    """Rank r of the adapters."""
    alpha: Annotated[float, Field(gt=0)] = 32.0
    """Scale α; the adapter's product is multiplied by α / r."""


class LossSettings(Section):
    """The notation of `docs/algorithm.md`."""

    method: Literal["hybrid", "grpo", "opd"] = "hybrid"
    """Terms of the loss: both, scores alone, or hints alone; a sample without what the method reads is left out."""
    rl_weight: Annotated[float, Field(ge=0)] = 1.0
    """w_rl, weight of the GRPO term."""
    opd_weight: Annotated[float, Field(ge=0)] = 1.0
    """w_opd, weight of the on-policy distillation term."""
    clip_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """ε_lo of the ratio clip."""
    clip_high: Annotated[float, Field(gt=0)] = 0.28
    """ε_hi of the ratio clip."""
    support_k: Annotated[int, Field(ge=1, le=64)] = 4
    """k, size of the support set."""
    delta_clip: Annotated[float, Field(gt=0)] | None = 1.0
    """C, clip of the log-probability difference between teacher and student; none: unclipped."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Largest ratio that counts where the advantage is negative; none: unbounded, as PPO has it."""
    negative_weight: Annotated[float, Field(ge=0)] = 1.0
    """Multiplier of negative advantages of the GRPO term: below 1, rejection pushes less than praise pulls."""
    baseline_decay: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Decay of the adapter's running mean reward, which is subtracted from rewards; none: nothing is."""
    teacher: Literal["old", "base"] = "old"
    """Who reads the hint: the policy as the update found it, or the base model with the adapter off."""
    opd_form: Literal["clipped", "forward", "reverse"] = "clipped"
    """OPD term: the clipped surrogate over the support, or the whole KL(teacher ‖ cur) or KL(cur ‖ teacher)."""
    guidance: Annotated[float, Field(gt=0)] = 1.0
    """Multiplier of what the hint changes in the teacher's logits, with a whole KL; above 1 it exaggerates the hint."""
    hint_choice: Literal["sequence", "token", "random"] = "sequence"
    """Choice among a turn's hints: by overlap for the response or for each token, or by lot for the response."""
    support: Literal["student", "overlap"] = "student"
    """Support set: the student's top-k, or what it shares with the teacher's."""
    importance_cap: Annotated[float, Field(ge=1)] = 2.0
    """Cap of the truncated importance weight between trainer and rollout."""
    kl_base_weight: Annotated[float, Field(ge=0)] = 0.0
    """β, weight of KL(cur ‖ base) at the responses' tokens."""
    neutral_weight: Annotated[float, Field(ge=0)] = 0.0
    """Weight of KL(cur ‖ base) at the base's own answers to neutral prompts; 0: they aren't read."""
    neutral_prompts: Annotated[int, Field(ge=1, le=16)] = 4
    """Neutral prompts per update; the next update takes the next ones."""

    @model_validator(mode="after")
    def _guidance_is_read(self) -> LossSettings:
        if self.guidance != 1 and self.opd_form == "clipped":
            raise ValueError(
                "guidance needs the whole divergence: set opd_form to forward or reverse, or guidance to 1"
            )
        return self


class GateSettings(Section):
    """What a new version is measured by before it serves. None: that isn't looked at."""

    on_failure: Literal["refuse", "ask", "promote"] = "refuse"
    """What becomes of a version that the gate objects to: refused, kept back for a person's word, or served anyway."""
    answers: Annotated[int, Field(ge=0, le=40)] = 10
    """Neutral prompts that a new version answers; 0: it answers none, and loops and lengths aren't seen."""
    own_answers: Annotated[int, Field(ge=0, le=16)] = 4
    """The adapter's own recent first messages that it answers besides; none of them is in the update's batch."""
    answer_tokens: Annotated[int, Field(ge=16, le=512)] = 64
    """Longest of these answers."""
    held_back: Annotated[int, Field(ge=0)] = 2
    """Samples of an update that aren't trained but tell whether it helped, at most one in eight; they wait again."""
    max_neutral_kl: Annotated[float, Field(gt=0)] | None = 0.1
    """Largest mean KL to the base per token, in nats, on neutral prompts."""
    max_degenerate: Annotated[float, Field(ge=0, le=1)] | None = 0.1
    """Largest share of empty, one-token, endlessly repeating or garbled answers beyond the base's own share."""
    max_length_ratio: Annotated[float, Field(gt=1)] | None = 3.0
    """Largest factor between the mean length of its answers and the base's, either way, where the base's end."""
    max_runaway: Annotated[float, Field(ge=0, le=1)] | None = 0.5
    """Largest share of its answers that don't end within `answer_tokens` where the base's do."""
    max_wrong_way: Annotated[float, Field(ge=0)] | None = 0.05
    """Largest mean move against the held-back samples' signal, in nats per token."""


class LearnSettings(Section):
    enabled: bool = True
    """Train adapters when enough samples wait."""
    samples_per_update: Annotated[int, Field(ge=1)] = 16
    """Waiting samples of one adapter that begin an update."""
    when: Literal["always", "idle", "window", "manual"] = "always"
    """When updates may begin: at once, while nobody asks, at the times of `cron`, or on `clawd train --now` only."""
    idle_minutes: Annotated[float, Field(gt=0)] = 10.0
    """With `when` idle: minutes without a request before an update may begin."""
    cron: str = "0 2 * * *"
    """With `when` window: a cron expression, in local time; all that is due then is trained, late if need be."""
    max_load: Annotated[float, Field(gt=0)] | None = None
    """Load average of the last minute above which no update begins; none: any."""
    min_free_memory_mb: Annotated[int, Field(ge=1)] | None = None
    """Free memory in megabytes below which no update begins, however little it is computed to need; none: any."""
    max_memory_mb: Annotated[int, Field(ge=1)] | None = None
    """Memory in megabytes that an update may be computed to need; none: what is free on its device."""
    min_battery_percent: Annotated[int, Field(ge=0, le=100)] = 30
    """Charge below which no update begins on battery; 100: only on mains."""
    keep: Annotated[int, Field(ge=0)] = 5
    """Retired versions of an adapter that stay, newest first; pinned ones and those in use stay besides."""
    halt_after: Annotated[int, Field(ge=1)] | None = 3
    """Updates of an adapter refused or failed in a row before it waits for `clawd adapter resume`; none: never."""
    roll_back_after: Annotated[int, Field(ge=1)] | None = 2
    """Versions in a row that turned out bad before the last good one is brought back; none: never."""
    steps: Annotated[int, Field(ge=1)] = 2
    """Optimiser steps per update, each over all its samples."""
    learning_rate: Annotated[float, Field(gt=0)] = 4e-4
    """AdamW's rate."""
    rate_schedule: Literal["constant", "sqrt", "inverse"] = "constant"
    """What the rate is divided by as versions grow: nothing, the root of the version's number, or the number."""
    kl_target: Annotated[float, Field(gt=0)] | None = None
    """KL(cur ‖ old) per token that ends an update's steps once one passes it; none: all steps are taken."""
    kl_excess: Literal["shrink", "stop"] = "shrink"
    """What becomes of the step that passes the KL target: it is shrunk to the target, or kept as the last one."""
    card: bool = False
    """Collect hints in a preference card per adapter and show it to the teacher with every sample."""
    card_lines: Annotated[int, Field(ge=1, le=64)] = 8
    """Lines of a preference card; the one that was confirmed longest ago makes room."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's decoupled weight decay."""
    grad_clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest global gradient norm."""
    max_sample_tokens: Annotated[int, Field(ge=32)] = 2048
    """Longest prompt + response that is trained; a longer one is discarded with that reason."""
    micro_batch_tokens: Annotated[int, Field(ge=32)] = 512
    """Padded tokens per forward pass."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Number format of the frozen base while training; auto: bfloat16 where the processor multiplies it natively."""
    quantise: Literal["none", "nf4"] = "none"
    """Form of the frozen base's linear layers while training: nf4 has a quarter of bfloat16's size, and rounds."""
    checkpointing: Literal["auto", "always", "never"] = "auto"
    """Compute layers again for the backward pass instead of keeping what they made; auto: if memory wouldn't do."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """Where updates are computed: cpu, cuda or cuda:N; auto: a GPU that has room for it, else the CPU."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Threads of the update; none: half of the physical cores, so that answers stay even."""
    nice: Annotated[int, Field(ge=0, le=19)] = 10
    """Niceness of the update process; at 19 it starves on a machine that is never idle."""
    pause_when_busy: bool = True
    """Let an update stand still while a person is being answered; judging and benchmarks don't count."""
    max_pause_s: Annotated[float, Field(gt=0)] = 300.0
    """With `pause_when_busy`: seconds that one update pauses in all; then it goes on beside people."""
    seed: int = 0
    """Seed of a new adapter's first weights."""
    max_rollout_mismatch: Annotated[float, Field(gt=0)] | None = 0.5
    """Largest mean |ℓ_old - ℓ_rollout| per token between trainer and engine; above it: refused; none: no limit."""
    min_usable_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Smallest usable share of an update's samples; below it: refused."""
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 100.0
    """Largest global gradient norm before it is clipped; above it: refused; none: no limit."""
    max_grad_growth: Annotated[float, Field(gt=1)] | None = 20.0
    """Largest gradient norm as a multiple of the adapter's earlier updates'; above it: refused; none: no limit."""
    max_kl_old: Annotated[float, Field(gt=0)] | None = 0.5
    """Largest KL to the version before, at the responses, per token, after any step; above it: refused; none: any."""
    max_kl_base: Annotated[float, Field(gt=0)] | None = 2.0
    """Largest KL to the base at the responses, per token, after the update; above it: refused; none: any."""
    max_entropy_drift: Annotated[float, Field(gt=1)] | None = 3.0
    """Largest factor by which an update may change the entropy at the responses, either way; none: any."""
    max_mismatch_kl: Annotated[float, Field(gt=0)] = 0.1
    """Largest mean KL per token between the trainer's and the served adapter's distributions; above it: refused."""
    # A bfloat16 base rounds by about 1e-3 beside any adapter: the default refuses only what changes nothing at all.
    min_effect_kl: Annotated[float, Field(ge=0)] = 1e-7
    """Smallest mean KL per token between adapter on and off; below it the adapter is without effect and refused."""
    timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    """Longest time of one update, its pauses not counted."""
    attempts: Annotated[int, Field(ge=1)] = 3
    """Failed updates with the same samples before those are quarantined."""
    lora: LoraSettings = LoraSettings()
    loss: LossSettings = LossSettings()
    gate: GateSettings = GateSettings()

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415  for those who set it

        try:
            CronTrigger.from_crontab(value)
        except ValueError as error:
            raise ValueError(f"no cron expression (minute hour day month weekday): {error}") from None
        return value


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least serious message that is logged."""


class DaemonSettings(Section):
    grace_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """Time that running requests get to end after SIGTERM."""


class Settings(BaseSettings):
    """The resolved settings of one daemon."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # a mistyped key's value may be a secret
    )

    model: ModelSettings = ModelSettings()
    server: ServerSettings = ServerSettings()
    sessions: SessionSettings = SessionSettings()
    judge: JudgeSettings = JudgeSettings()
    learn: LearnSettings = LearnSettings()
    log: LogSettings = LogSettings()
    daemon: DaemonSettings = DaemonSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  the signature is pydantic's
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`Settings(...)` in code takes what it is given and nothing else; `load` adds the other sources."""
        return (init_settings,)


def hand_over(settings: Settings, path: Path) -> None:
    """Write the resolved settings, secrets included, for the child processes; readable by the owner alone."""

    def reveal(value: object) -> object:
        return value.get_secret_value() if isinstance(value, SecretStr) else str(value)

    write_privately(path, json.dumps(settings.model_dump(exclude_unset=True), default=reveal))


def take_over(path: Path) -> Settings:
    """Read what `hand_over` wrote. The environment is not asked again: all processes of a daemon agree."""
    return Settings(**json.loads(path.read_text()))


def load(folder: DataFolder, flags: Sequence[str] = ()) -> Settings:
    """Resolve flags, environment and TOML file of `folder` into one `Settings`.

    Raises:
        ConfigError: an unknown key, a value out of bounds, or a file that isn't TOML or can't be read; names the key
            and its source.
    """

    class Resolved(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            command_line = CliSettingsSource[Any](
                settings_cls,
                cli_parse_args=list(flags),
                cli_prog_name="clawd start",
                cli_exit_on_error=False,
                cli_avoid_json=True,
            )
            toml = TomlConfigSettingsSource(settings_cls, folder.config_file)
            return command_line, init_settings, env_settings, toml

    _refuse_unknown_environment()
    _refuse_unreadable(folder.config_file)
    try:
        resolved = Resolved()
    except ValidationError as error:
        raise ConfigError(_explain(error, folder)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder.config_file} is no TOML file: {error}") from None
    except OSError as error:
        raise ConfigError(f"{folder.config_file} can't be read: {error.strerror}.") from None
    except (SettingsError, ValueError) as error:
        raise ConfigError(f"The settings can't be read: {error}") from None
    return Settings(**resolved.model_dump(exclude_unset=True))


def _refuse_unknown_environment() -> None:
    """pydantic-settings looks only for the names it knows, so that a misspelt section would be ignored."""
    sections = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    for name in os.environ:
        upper = name.upper()  # pydantic-settings takes either case
        if upper.startswith(ENV_PREFIX) and upper not in NOT_SETTINGS and upper.split("__")[0] not in sections:
            raise ConfigError(f"The environment variable {name} is no setting of clawd: see `clawd config` for all.")


def _refuse_unreadable(path: Path) -> None:
    """pydantic-settings passes over whatever isn't a file: the settings that somebody meant would be ignored."""
    if path.is_file() or not os.path.lexists(path):
        return
    raise ConfigError(f"{path} is no file that can be read: make it a TOML file, or remove it.")


def _explain(error: ValidationError, folder: DataFolder) -> str:
    lines = []
    for item in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"{key}: no such setting")
        else:
            lines.append(f"{key}: {item['msg']}")
    return (
        "The settings are not accepted:\n  "
        + "\n  ".join(lines)
        + f"\nThey come from flags, environment variables {ENV_PREFIX}SECTION__KEY and {folder.config_file}; "
        "`clawd config` lists all."
    )
