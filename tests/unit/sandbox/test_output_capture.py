from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.sandbox.local import OutputCapture


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 60))
def test_head_and_tail_are_kept_and_the_file_has_everything(
    tmp_path: Path, pieces: list[bytes], keep: int
):
    spill = tmp_path / "all"
    spill.unlink(missing_ok=True)
    capture = OutputCapture(keep, str(spill))
    for piece in pieces:
        capture.add(piece)
    capture.close()
    whole = b"".join(pieces)
    kept = capture.kept()
    assert capture.total == len(whole)
    if len(whole) <= keep:
        assert (kept, capture.seam) == (whole, None)
        assert not spill.exists()
    else:
        head = int(keep * 0.4)
        assert capture.seam == head
        assert kept == whole[:head] + whole[len(whole) - (keep - head) :]
        assert spill.read_bytes() == whole


def test_spill_file_is_limited(tmp_path: Path):
    capture = OutputCapture(10, str(tmp_path / "all"), limit=25)
    for _ in range(10):
        capture.add(b"0123456789")
    capture.close()
    assert (
        tmp_path / "all"
    ).read_bytes() == b"0123456789012345678901234\n[75 more bytes were not saved]\n"
    assert capture.total == 100
    assert (tmp_path / "all").stat().st_mode & 0o777 == 0o600


def test_unwritable_spill_file_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture = OutputCapture(4, str(tmp_path / "no" / "folder"))
    for _ in range(3):
        capture.add(b"012345")
    capture.close()
    assert (capture.total, capture.kept()) == (18, b"0345")
    assert len(caplog.records) == 1
