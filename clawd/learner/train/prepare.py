"""Makes the dense base ahead of the first update, in a process of its own.

    python -m clawd.learner.train.prepare BASE.gguf FINGERPRINT CACHE_FOLDER DTYPE DEVICE MAX_PAUSE_S

Does nothing where it is there already. An update that comes meanwhile waits for it. Stands back
for people as an update does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clawd.config import LearnSettings
from clawd.learner.train.courtesy import Courtesy
from clawd.learner.train.machine import set_environment
from clawd.lifeline import die_with_parent


def main(arguments: list[str]) -> int:
    base, fingerprint, cache, dtype, device, max_pause_s = arguments
    set_environment()
    settings = LearnSettings.model_validate({"dtype": dtype, "device": device, "max_pause_s": float(max_pause_s)})
    with Courtesy.of(settings).watching():
        from clawd.learner.train.base import prepare, training_dtype  # noqa: PLC0415  after the environment is set
        from clawd.learner.train.devices import first_kind  # noqa: PLC0415

        prepare(Path(base), fingerprint, Path(cache), training_dtype(settings.dtype, first_kind(settings.device)))
    return 0


if __name__ == "__main__":
    die_with_parent()
    raise SystemExit(main(sys.argv[1:]))
