"""Models that tests of every part share."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.model.embedded import embedded_model_path
from tests.tiny_gguf import write_tiny_model


@pytest.fixture(scope="session")
def embedded_model() -> Path:
    """SmolLM2-135M-Instruct, as shipped."""
    return embedded_model_path()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random layers, 269 tokens, context 512: answers nonsense, at thousands of tokens a second."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny.gguf")
