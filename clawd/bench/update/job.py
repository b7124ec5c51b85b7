"""The fixed job: 16 samples, median 200 prompt and 150 response tokens, half of them with two hints.

Sentences in a seeded order, tokenised by the model's own vocabulary: for the cost only lengths matter, for gradients
that the tokens are neither noise nor all alike.
"""

from __future__ import annotations

import random
from pathlib import Path

from clawd.config import LearnSettings
from clawd.learner.job import JOB_FILE, SAMPLES_FILE, HintPrompt, Job, Sample
from clawd.model.fingerprint import fingerprint
from clawd.model.vocab import Vocabulary

PROMPT_TOKENS = (90, 198, 110, 420, 130, 205, 150, 600, 170, 220, 185, 202, 195, 240, 280, 340)
RESPONSE_TOKENS = (152, 40, 320, 60, 148, 400, 80, 160, 95, 220, 110, 175, 125, 260, 140, 190)
HINT_TOKENS = 24
QUICK = slice(0, 16, 5)  # four samples: with hints and without, short and long
SENTENCES = (
    "The ferry leaves at seven and comes back before it is dark.",
    "You can fold the map so that the river runs along the edge.",
    "First weigh the flour, then add water until the dough is smooth.",
    "A function that returns nothing still has to say so.",
    "Most of the houses in the old town were built of the same grey stone.",
    "If the number is even, divide it by two; otherwise take three times it and add one.",
    "She had promised to write, and for once she kept her word.",
    "The engine gets warm because the pump moves less water than it should.",
    "There are three reasons for this, and only one of them is good.",
    "Take the second road on the left and follow it down to the lake.",
)


def write_job(folder: Path, model: Path, cache: Path, settings: LearnSettings, *, quick: bool, length: float) -> int:
    """Write the job; the tokens that one pass over its samples feeds. `length` scales prompts and responses."""
    with Vocabulary.open(model) as vocabulary:
        samples = make_samples(vocabulary, length)[QUICK if quick else slice(None)]
    job = Job(
        update_id="bench",
        adapter_id="bench",
        adapter_name="bench",
        number=1,
        parent=None,
        base=model,
        base_fingerprint=fingerprint(model, cache),
        cache=cache,
        settings=settings,
    )
    folder.mkdir(parents=True)
    (folder / JOB_FILE).write_text(job.model_dump_json())
    (folder / SAMPLES_FILE).write_text("".join(f"{sample.model_dump_json()}\n" for sample in samples))
    return sum(len(sample.prompt_ids) + len(sample.response_ids) - 1 for sample in samples)


def make_samples(vocabulary: Vocabulary, length: float) -> list[Sample]:
    order = random.Random(0)  # noqa: S311  for a fixed order, not for secrets

    def text(tokens: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < tokens:
            ids += vocabulary.tokenise(order.choice(SENTENCES) + " ", parse_special=False)
        return ids[:tokens]

    samples = []
    for number, (prompt, response) in enumerate(zip(PROMPT_TOKENS, RESPONSE_TOKENS, strict=True)):
        prompt_ids = text(round(length * prompt))
        hints = [
            HintPrompt(
                hint_id=f"{number}.{h}", text="", prompt_ids=[*prompt_ids[:-8], *text(HINT_TOKENS), *prompt_ids[-8:]]
            )
            for h in range(2 if number % 2 else 0)
        ]
        response_ids = text(round(length * response))
        samples.append(
            Sample(
                sample_id=str(number),
                turn_id=str(number),
                prompt_ids=prompt_ids,
                response_ids=response_ids,
                rollout_logprobs=[-order.uniform(1.0, 4.0) for _ in response_ids],
                rollout_version=None,
                reward=(1, -1, -1)[number % 3],
                hints=hints,
            )
        )
    return samples
