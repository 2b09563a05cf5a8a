"""Whom the owner vouched for is kept; what could not be kept is not taken for kept."""

from pathlib import Path

import pytest

from hermes.tools.provenance.trust_store import TrustStore

GUIDE, WORDS = Path("/work/AGENTS.md"), b"Use tabs."


def test_what_cannot_be_written_down_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    file.mkdir()
    trusted = TrustStore(file)
    with pytest.raises(IsADirectoryError):
        trusted.keep(GUIDE, WORDS)
    assert not trusted.knows(GUIDE, WORDS)
    trusted.vouch(GUIDE, WORDS)
    assert trusted.knows(GUIDE, WORDS)
    assert not TrustStore(file).knows(GUIDE, WORDS)
    file.rmdir()
    trusted.keep(GUIDE, WORDS)
    assert TrustStore(file).knows(GUIDE, WORDS)


def test_half_a_line_spoils_no_other(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    file.write_bytes(b'{"path":"/wo\xff')
    TrustStore(file).keep(GUIDE, WORDS)
    assert TrustStore(file).knows(GUIDE, WORDS)


def test_what_stands_there_no_more_is_not_trusted_any_more(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    trusted = TrustStore(file)
    trusted.keep(GUIDE, WORDS)
    trusted.keep(GUIDE, b"Use spaces.")
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[1])
    assert not trusted.knows(GUIDE, WORDS)
    assert trusted.knows(GUIDE, b"Use spaces.")
    file.unlink()
    assert not trusted.knows(GUIDE, b"Use spaces.")


def test_a_name_that_is_no_text_is_kept_as_well(tmp_path: Path) -> None:
    file, odd = tmp_path / "vouched", Path("/work/\udcff/AGENTS.md")
    TrustStore(file).keep(odd, WORDS)
    assert TrustStore(file).knows(odd, WORDS)
    assert not TrustStore(file).knows(Path("/work/?/AGENTS.md"), WORDS)
