from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.store import Store
from tests.server.live import Live, live_server


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "clawd.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_server(tmp_path_factory.mktemp("home")) as server:
        yield server
