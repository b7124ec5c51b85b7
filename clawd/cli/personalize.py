"""`clawd bench personalize`: how many sessions it takes to learn what a user wants, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from clawd.cli.report_view import print_report
from clawd.errors import ConfigError, MissingExtra

# Loads llama.cpp's binding and matplotlib, which `clawd --help` must not: imported where they run.
if TYPE_CHECKING:
    from clawd.bench.personalize.baseline import Base
    from clawd.bench.personalize.record import RunRecord
    from clawd.bench.personalize.users.persona import Voice

DEFAULT_ARMS = "hybrid,grpo,opd,hint-random,joint,none,memory"
ALL_USERS = "student,ta,teacher"


@dataclass(frozen=True)
class Size:
    """`None` in an option means the size's own."""

    arms: str
    users: str
    seeds: int
    sessions: int
    base_replies: int
    neutral_prompts: int


FULL = Size(DEFAULT_ARMS, ALL_USERS, 3, 30, 16, 40)
QUICK = Size("hybrid", "teacher", 1, 20, 6, 12)


def add_to(bench: typer.Typer) -> None:
    bench.command("personalize")(personalize)


def personalize(
    model: Annotated[Path | None, typer.Option(help="GGUF file; by default the embedded one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One arm, user and seed; under ten minutes.")] = False,
    arms: Annotated[
        str | None, typer.Option(help=f"Comma-separated, or all without Mem0's; default {DEFAULT_ARMS}.")
    ] = None,
    users: Annotated[str | None, typer.Option(help=f"Comma-separated; default {ALL_USERS}.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each arm and user; default 3.")] = None,
    sessions: Annotated[int | None, typer.Option(min=3, help="Sessions per user and run; default 30.")] = None,
    tasks: Annotated[Path | None, typer.Option(help="Problems in GSM8K's JSON form; default: generated.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE of the daemons; may be given several times.")
    ] = None,
    user_endpoint: Annotated[
        str | None, typer.Option(help="OpenAI endpoint (…/v1) whose model plays the users.")
    ] = None,
    user_model: Annotated[str, typer.Option(help="That model's name.")] = "",
    user_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="That endpoint's key.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs, report and plot.")] = Path("clawd-bench-personalize"),
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw no plot.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """How many sessions it takes until first replies are as a user wants them, and what it costs the model's mind.

    Simulated users talk to daemons of its own. Finished runs lie in --out and aren't run again: after a stop, the same
    command goes on where it was. Each run takes minutes; all arms and users take hours.
    """
    from clawd.bench.personalize.figures import report as make_report  # noqa: PLC0415
    from clawd.bench.personalize.run import Experiment, Plan  # noqa: PLC0415
    from clawd.model.embedded import embedded_model_path  # noqa: PLC0415

    size = QUICK if quick else FULL
    plan = Plan(
        model=(model or embedded_model_path()).resolve(),
        out=out,
        arms=_arms(arms or size.arms),
        users=_users(users or size.users),
        seeds=range(seeds or size.seeds),
        sessions=sessions or size.sessions,
        voice=_voice(user_endpoint, user_model, user_key),
        voice_name=user_model if user_endpoint else "scripted",
        tasks=tasks,
        settings=_flags(setting or []),
        base_replies=size.base_replies,
        neutral_prompts=size.neutral_prompts,
    )
    draw = None if no_plot else _drawing()
    progress = Console(stderr=True)
    base, records = Experiment(plan, lambda step: progress.print(step, highlight=False, markup=False)).run()
    command = f"clawd bench personalize --model {plan.model.name} " + _command(plan.arms, plan.users, plan.settings)
    report = make_report(command + f" --seeds {len(plan.seeds)} --sessions {plan.sessions}", base, records, plan.users)
    (out / "report.json").write_text(report.to_json() + "\n", encoding="utf-8")
    if draw is not None:
        draw(base, records, plan.users, report.command, out / "report.png")
    progress.print(f"Report, plot and runs: {out}", highlight=False)
    print_report(report, json_output)


def _command(arms: Sequence[str], users: Sequence[str], settings: Sequence[str]) -> str:
    pairs = zip(settings[::2], settings[1::2], strict=True)
    told = [f"--set {key.removeprefix('--')}={value}" for key, value in pairs]
    return " ".join([f"--arms {','.join(arms)}", f"--users {','.join(users)}", *told])


def _arms(names: str) -> list[str]:
    from clawd.bench.personalize.arms import ARMS  # noqa: PLC0415

    if names == "all":
        return [name for name, arm in ARMS.items() if not arm.needs_mem0]
    return _known(names, list(ARMS), "arm")


def _users(names: str) -> list[str]:
    from clawd.bench.personalize.users import PERSONAS  # noqa: PLC0415

    return _known(names, list(PERSONAS), "user")


def _known(names: str, known: Sequence[str], what: str) -> list[str]:
    """Raises ConfigError: one of the names is unknown, or there is none."""
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    wrong = [name for name in chosen if name not in known]
    if wrong or not chosen:
        raise ConfigError(f"No such {what}: {', '.join(wrong) or repr(names)}. There are {', '.join(known)}.")
    return chosen


def _flags(settings: Sequence[str]) -> list[str]:
    """Raises ConfigError: one isn't KEY=VALUE."""
    flags = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {setting}: write KEY=VALUE, such as learn.learning_rate=1e-4.")
        flags += [f"--{key}", value]
    return flags


def _voice(endpoint: str | None, model: str, key: str | None) -> Voice:
    from clawd.bench.personalize.users.endpoint import EndpointVoice  # noqa: PLC0415
    from clawd.bench.personalize.users.persona import ScriptedVoice  # noqa: PLC0415

    if endpoint is None:
        return ScriptedVoice()
    if not model:
        raise ConfigError("--user-endpoint needs --user-model.")
    return EndpointVoice(endpoint, model, key)


def _drawing() -> Callable[[Base, Sequence[RunRecord], Sequence[str], str, Path], None]:
    """What draws the plot; asked for before anything is measured. Raises MissingExtra."""
    try:
        from clawd.bench.personalize.plot import draw  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra(f"The plot needs {error.name}: pip install 'clawd[bench]', or --no-plot.") from None
    return draw
