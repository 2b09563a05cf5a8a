"""SQLite's complaints in our own words: what happened, and what to do about it."""

from pathlib import Path

import apsw
import pytest

from hermes.schema.errors import StoreFull
from hermes.store.errors import store_error


@pytest.mark.parametrize("code", [apsw.SQLITE_FULL, apsw.SQLITE_IOERR_SHMSIZE])
def test_a_full_disk_has_more_than_one_name(tmp_path: Path, code: int) -> None:
    explained = store_error(apsw.exception_for(code), tmp_path / "state.db")
    assert isinstance(explained, StoreFull)
    assert "df -h" in explained.hint


def test_whatever_else_is_wrong_has_a_next_step(tmp_path: Path) -> None:
    explained = store_error(apsw.exception_for(apsw.SQLITE_IOERR_READ), tmp_path / "state.db")
    assert not isinstance(explained, StoreFull)
    assert "hermes doctor" in explained.hint
