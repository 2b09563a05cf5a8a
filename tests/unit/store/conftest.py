from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The database file of `store`."""
    return tmp_path / "hermes.db"
