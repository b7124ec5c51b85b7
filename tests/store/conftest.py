from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.store import Store
from tests.store.world import World


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clawd.db") as opened:
        yield opened


@pytest.fixture
def world(store: Store) -> World:
    return World(store)
