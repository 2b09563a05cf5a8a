from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where `store` keeps its rows."""
    return tmp_path / "state.db"
