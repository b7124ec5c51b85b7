from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clawd.db") as opened:
        yield opened
