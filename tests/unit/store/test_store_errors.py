"""SQLite errors are translated into errors that say what to do."""

from pathlib import Path

import apsw
import pytest

from hermes.schema.errors import StoreFull
from hermes.store.connection import store_error


@pytest.mark.parametrize("code", [apsw.SQLITE_FULL, apsw.SQLITE_IOERR_SHMSIZE])
def test_every_full_disk_error_is_recognized(tmp_path: Path, code: int) -> None:
    explained = store_error(apsw.exception_for(code), tmp_path / "hermes.db")
    assert isinstance(explained, StoreFull)
    assert "df -h" in explained.hint


def test_other_errors_have_a_hint(tmp_path: Path) -> None:
    explained = store_error(apsw.exception_for(apsw.SQLITE_IOERR_READ), tmp_path / "hermes.db")
    assert not isinstance(explained, StoreFull)
    assert "hermes doctor" in explained.hint
