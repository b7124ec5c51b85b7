"""The child that reads distributions: `Material` on the first line of stdin, then a version's folder a line.

    python -m clawd.bench.ablate.reader

Prints a `Read` for each line, the base's for the first. The trainer's own forward pass, in float32. Loads torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from clawd.bench.ablate.reading import Material, Read, Text
from clawd.learner.train.base import load_base
from clawd.learner.train.forward import TokenSequence, kl_to, micro_batches, pad, picked_logprobs, response_hidden
from clawd.learner.train.machine import set_environment
from clawd.learner.train.policy import Policy
from clawd.learner.train.trainer import use_machine
from clawd.lifeline import die_with_parent

BATCH_TOKENS = 512


class Reader:
    def __init__(self, material: Material) -> None:
        use_machine(material.threads, torch.float32)
        dense = load_base(material.base, material.base_fingerprint, material.cache, torch.float32)
        self._policy = Policy(dense, material.lora, 0, material.base.name)
        self._satisfying = _sequences(material.satisfying)
        self._other = _sequences(material.other)
        self._neutral = _sequences(material.neutral)
        with self._policy.adapter_off():
            self._of_base = self._hidden(self._neutral)
            self.base = self._read()

    def version(self, folder: Path) -> Read:
        """Raises UpdateFailed: its files can't be read."""
        self._policy.load(folder)
        return self._read()

    @torch.no_grad()
    def _read(self) -> Read:
        head = self._policy.head
        divergences = [
            kl_to(hidden, base, head) for hidden, base in zip(self._hidden(self._neutral), self._of_base, strict=True)
        ]
        return Read(
            satisfying=self._mean_logprob(self._satisfying),
            other=self._mean_logprob(self._other),
            neutral_kl=float(torch.cat(divergences).mean()) if divergences else 0.0,
        )

    @torch.no_grad()
    def _hidden(self, sequences: Sequence[TokenSequence]) -> list[Tensor]:
        """(N, H) of each micro-batch."""
        return [
            response_hidden(self._policy, pad([sequences[index] for index in group], self._policy.device))
            for group in _groups(sequences)
        ]

    def _mean_logprob(self, sequences: Sequence[TokenSequence]) -> float:
        """Mean over the sequences of the mean log-probability per token."""
        means: list[Tensor] = []
        for group in _groups(sequences):
            batch = pad([sequences[index] for index in group], self._policy.device)
            asked = batch.response_ids[batch.tokens][:, None]
            values = picked_logprobs(response_hidden(self._policy, batch), self._policy.head, asked)[:, 0]
            means += [part.mean() for part in torch.split(values, batch.tokens.sum(dim=1).tolist())]
        return float(torch.stack(means).mean())


def _sequences(texts: Sequence[Text]) -> list[TokenSequence]:
    return [TokenSequence(text.prompt, text.reply) for text in texts]


def _groups(sequences: Sequence[TokenSequence]) -> list[list[int]]:
    return micro_batches([sequence.length for sequence in sequences], BATCH_TOKENS)


def main() -> int:
    reader = Reader(Material.model_validate_json(sys.stdin.readline()))
    print(reader.base.model_dump_json(), flush=True)
    for line in sys.stdin:
        print(reader.version(Path(line.strip())).model_dump_json(), flush=True)
    return 0


if __name__ == "__main__":
    die_with_parent()
    set_environment()
    raise SystemExit(main())
