"""Memory by Mem0 (the package mem0ai), on this machine alone.

Its language model is the benchmarked daemon's bare base, its embeddings are static ones that lie in the package
wordllama, its store is a folder. Nothing is fetched, and its telemetry is off. So are its keyword search and its
entities, whose models would have to be fetched: it finds by likeness alone.

Two forms. *Extracted*: as Mem0 is made to be used, the model distils each session into facts. *Raw*: the corrections
that the rules judge reads are stored as they are, so that what differs from the plain memory is how they are found
again.
"""

from __future__ import annotations

import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from clawd.bench.personalize.memory import HEADER, MOST_NOTES, Messages, corrections, system_message
from clawd.errors import BenchFailed, MissingExtra

logger = logging.getLogger(__name__)

PACKAGES = ("mem0", "wordllama")
DIMENSIONS = 256
EXTRACTION_TOKENS = 600
"""Room for some facts as JSON; Mem0's own limit is 2,000, and a small model that loses the thread fills it."""
EXTRACTION_CONTEXT = 10_240
"""Tokens. Mem0's instructions take 8,000 to 8,600; session, memories and answer come to them."""
FACTS_HEADER = "What is remembered of earlier conversations with this user. Keep to it:"


def require_mem0(context: int, extracts: bool) -> None:
    """`context` in tokens, of the model that is to extract.

    Raises:
        MissingExtra: the packages aren't installed.
        BenchFailed: Mem0's prompt doesn't fit into the model's context.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"The memory by Mem0 needs {' and '.join(missing)}: pip install 'clawd[bench-mem0]'.")
    if extracts and context < EXTRACTION_CONTEXT:
        raise BenchFailed(
            f"Mem0's instructions for extracting facts need a context of {EXTRACTION_CONTEXT} tokens and the model has "
            f"{context}: take another with --model, or the arm memory-mem0-raw, which extracts nothing."
        )


class Embedder:
    """Static embeddings: the mean of the tokens' vectors, and one constant component.

    A static embedding's cosines scatter around 0, and Mem0 leaves out what is below 0.1: of some users' corrections it
    would find every tenth. The constant turns a cosine c into (1 + c) / 2, which keeps the order and practically all.
    """

    def __init__(self) -> None:
        # Importing wordllama sets the root logger to INFO, unless it is set up: then every request would be told.
        logging.basicConfig(level=logging.WARNING)
        import wordllama  # noqa: PLC0415

        # It looks for its tokenizer in its cache only, and the file lies in the package.
        package = Path(wordllama.__file__).parent
        self._model = wordllama.WordLlama.load(cache_dir=package, disable_download=True)

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        """(DIMENSIONS + 1,), of length 1."""
        return self.embed_batch([text], memory_action)[0]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        del memory_action  # all are embedded alike
        vectors = self._model.embed(texts, norm=True)  # (texts, DIMENSIONS)
        lifted = np.hstack([vectors, np.ones((len(texts), 1))]) / np.sqrt(2)
        return [[float(component) for component in vector] for vector in lifted]


class Mem0Memory:
    def __init__(self, url: str, model: str, folder: Path, user: str, *, extracts: bool) -> None:
        """`url` of the daemon, `model` the name of its bare base; `folder` becomes Mem0's."""
        self._user = user
        self._extracts = extracts
        self._memory = _mem0(url, model, folder)

    def prompt(self, asked: str) -> Messages:
        found = self._memory.search(asked, filters={"user_id": self._user}, top_k=MOST_NOTES)
        header = FACTS_HEADER if self._extracts else HEADER
        return system_message(header, [str(each["memory"]) for each in found["results"]])

    def hear(self, conversation: Messages) -> None:
        """Raises BenchFailed: the model's endpoint refused or failed."""
        if self._extracts:
            self._extract(conversation)
            return
        for hint in corrections(conversation):
            self._memory.add(hint, user_id=self._user, infer=False)

    def _extract(self, conversation: Messages) -> None:
        from mem0.exceptions import LLMError  # noqa: PLC0415

        try:
            self._memory.add(conversation, user_id=self._user)
        except LLMError as error:
            raise BenchFailed(f"Mem0 got no answer of its model: {error}") from None
        except (AttributeError, TypeError) as error:
            # What isn't JSON Mem0 tells and passes over; JSON of another form than it asked for it doesn't expect.
            logger.warning("Mem0 can't read what its model extracted, and keeps nothing of this session: %r", error)

    def close(self) -> None:
        self._memory.llm.client.close()
        self._memory.vector_store.client.close()
        self._memory.close()


def _mem0(url: str, model: str, folder: Path) -> Any:
    """A `mem0.Memory`.

    Raises:
        BenchFailed: something else has imported Mem0 before, with its telemetry on.
    """
    folder.mkdir()
    # Both are read by the first import, and never again.
    os.environ["MEM0_TELEMETRY"] = "false"  # with it go its notices, which are fetched
    os.environ["MEM0_DIR"] = str(folder)  # else it makes ~/.mem0
    from mem0 import Memory  # noqa: PLC0415
    from mem0.memory import telemetry  # noqa: PLC0415
    from mem0.utils import spacy_models  # noqa: PLC0415
    from openai import OpenAI  # noqa: PLC0415

    if telemetry.MEM0_TELEMETRY:
        raise BenchFailed("Mem0 runs with its telemetry on: set MEM0_TELEMETRY=false before it is imported.")

    endpoint = {"api_key": "none", "openai_base_url": f"{url}/v1"}
    memory = Memory.from_config(
        {
            "llm": {"provider": "openai", "config": {**endpoint, "model": model, "max_tokens": EXTRACTION_TOKENS}},
            "embedder": {"provider": "openai", "config": endpoint},
            "vector_store": {
                "provider": "qdrant",
                "config": {"path": str(folder / "qdrant"), "embedding_model_dims": DIMENSIONS + 1},
            },
            "history_db_path": str(folder / "history.db"),
        }
    )
    # Mem0's settings know neither headers nor embedders of one's own, and its client would follow OPENROUTER_API_KEY.
    headers = {"X-Turn-Type": "side", "X-Clawd-Priority": "background"}
    memory.llm.client = OpenAI(base_url=endpoint["openai_base_url"], api_key="none", default_headers=headers)
    memory.embedding_model = Embedder()
    # Where spaCy or fastembed happen to be installed, Mem0 would fetch their models: for entities and keyword search.
    spacy_models._load_failed_full = spacy_models._load_failed_lemma = True
    memory.vector_store._bm25_encoder = False
    return memory
