from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.sandbox.capture import OutputCapture


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 60))
def test_both_ends_stay_and_the_file_has_everything(tmp_path: Path, pieces: list[bytes], keep: int):
    spill = tmp_path / "all"
    spill.unlink(missing_ok=True)
    keeping = OutputCapture(keep, str(spill))
    for piece in pieces:
        keeping.add(piece)
    keeping.close()
    whole = b"".join(pieces)
    kept = keeping.kept()
    assert keeping.total == len(whole)
    if len(whole) <= keep:
        assert (kept, keeping.seam) == (whole, None)
        assert not spill.exists()
    else:
        head = int(keep * 0.4)
        assert keeping.seam == head
        assert kept == whole[:head] + whole[len(whole) - (keep - head) :]
        assert spill.read_bytes() == whole


def test_the_file_does_not_grow_for_ever(tmp_path: Path):
    keeping = OutputCapture(10, str(tmp_path / "all"), limit=25)
    for _ in range(10):
        keeping.add(b"0123456789")
    keeping.close()
    assert (
        tmp_path / "all"
    ).read_bytes() == b"0123456789012345678901234\n[the rest was not kept: 75 bytes]\n"
    assert keeping.total == 100
    assert (tmp_path / "all").stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    keeping = OutputCapture(4, str(tmp_path / "no" / "folder"))
    for _ in range(3):
        keeping.add(b"012345")
    keeping.close()
    assert (keeping.total, keeping.kept()) == (18, b"0345")
    assert len(caplog.records) == 1
