"""The update child: one training step of one adapter, from a job folder to a result folder.

    python -m clawd.learner.train.update JOB_DIR

Guarantees, whatever happens: `result/` is either absent or whole and checked; `outcome.json` comes last and says which.
The same job on the same machine gives the same bytes of adapter, paused (`courtesy.py`) or not. SIGTERM ends it at
once. Works on token ids alone: no tokenizer is loaded.

Prints one JSON object a line: `{"event": "phase"|"step"|"outcome", ...}`. Metrics, all scalar:

    samples/trained                                 samples/used less those that were held back
    samples/used, samples/quarantined, samples/hinted, samples/scored
    samples/flat_groups                             groups of a task's steps without variance: they give no gradient
    mismatch/abs_mean, mismatch/abs_p99, mismatch/importance_weight    trainer (old) against engine, before training
    train/first_loss, train/first_ratio, train/first_grad_norm, train/loss, train/grad_norm   before clipping
    train/tokens_per_s, train/steps
    train/paused_s                                  standing back for people, in all phases; in none of `seconds`
    train/learning_rate
    drift/kl_old, drift/kl_base, drift/entropy_ratio   at the trained responses after the last step, see `drift`
    trust/kl, trust/share                           KL(cur ‖ old) after the last step, share of it kept; with a target
    neutral/kl_base                                 KL(cur ‖ base) at neutral prompts at the last step; if asked for
    grpo/*, opd/*, kl_base/*                                           terms of the loss at the last step, see `losses`
    effect/kl_old, effect/praised_logprob, effect/rejected_logprob     after the last step, per token
    validate/mismatch_kl, validate/base_mismatch_kl, validate/effect_kl   through llama.cpp, nats per token
    validate/trained_effect_kl                                         adapter on against off, by the trainer
    gate/neutral_kl                                     KL(cur ‖ base) on the base's answers to the bundled prompts
    gate/degenerate_*, gate/length_*, gate/runaway_*    of `candidate`, `base`; on own messages `active`, `base_own`
    gate/held_back_gain                                 towards the held-back samples' signal, nats per token
    memory/peak_mb                                  of this process, on a GPU of its tensors there
    memory/budget_mb, memory/checkpointing          what was computed beforehand, and whether layers are computed again
"""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path

from pydantic import ValidationError

from clawd.errors import AdapterRejected, NoRoom, UpdateFailed, UpdateRefused
from clawd.learner.job import JOB_FILE, OUTCOME_FILE, RESULT_FOLDER, SAMPLES_FILE, Job, Outcome, Sample
from clawd.learner.train.course import Course, emit
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.machine import be_nice, set_environment
from clawd.lifeline import die_with_parent

log = logging.getLogger(__name__)

ASIDE = ".result"


def run(folder: Path) -> Outcome:
    """Do the job in `folder` and write its outcome; never raises for what a job can bring about."""
    course = Course()
    clear(folder)
    try:
        job, samples = read_job(folder)
        compute(job, samples, folder / ASIDE, course)
        (folder / ASIDE).rename(folder / RESULT_FOLDER)
        outcome = course.outcome("staged")
    except (UpdateRefused, AdapterRejected) as refusal:
        outcome = course.outcome("refused", str(refusal))
    except NoRoom as shortage:
        course.deferred = True
        outcome = course.outcome("failed", str(shortage))
    except Exception as error:  # the outcome must say what happened, whatever it was
        log.exception("the update failed")
        outcome = course.outcome("failed", f"{type(error).__name__}: {error}")
    shutil.rmtree(folder / ASIDE, ignore_errors=True)
    write_aside(folder / OUTCOME_FILE, outcome.model_dump_json(indent=2))
    emit("outcome", state=outcome.state, reason=outcome.reason)
    return outcome


def clear(folder: Path) -> None:
    """Remove what an earlier try left, the outcome first: without it, nobody takes the rest for a result."""
    (folder / OUTCOME_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder / RESULT_FOLDER, ignore_errors=True)
    shutil.rmtree(folder / ASIDE, ignore_errors=True)


def read_job(folder: Path) -> tuple[Job, list[Sample]]:
    """Raises: UpdateFailed: a file is missing or isn't what the contract says."""
    try:
        job = Job.model_validate_json((folder / JOB_FILE).read_text())
        lines = (folder / SAMPLES_FILE).read_text().splitlines()
        return job, [Sample.model_validate_json(line) for line in lines if line.strip()]
    except OSError as error:
        raise UpdateFailed(f"The job folder is incomplete: {error}") from error
    except ValidationError as error:
        raise UpdateFailed(f"The job folder holds what can't be used: {error}") from error


def compute(job: Job, samples: list[Sample], aside: Path, course: Course) -> None:
    """Lower the priority, then import what is heavy and train, standing back for people."""
    be_nice(job.settings.nice)
    course.courtesy = Courtesy.of(job.settings)
    with course.courtesy.watching():
        from clawd.learner.train.trainer import update  # noqa: PLC0415  after the priority and the environment are set

        update(job, samples, aside, course)


def write_aside(path: Path, text: str) -> None:
    """Let `path` appear whole."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(text)
    aside.replace(path)


def main(arguments: list[str]) -> int:
    """Exit status 0: staged; 1: refused or failed, see the outcome; 2: no job folder."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m clawd.learner.train.update JOB_DIR", file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    set_environment()
    return 0 if run(folder).state == "staged" else 1


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main(sys.argv[1:]))
