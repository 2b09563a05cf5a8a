"""Trusted files are stored; what could not be stored is not trusted."""

from pathlib import Path

import pytest

from hermes.tools.provenance.instruction_files import TrustStore

GUIDE, WORDS = Path("/work/AGENTS.md"), b"Use tabs."


def test_unwritable_entry_is_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    file.mkdir()
    trusted = TrustStore(file)
    with pytest.raises(IsADirectoryError):
        trusted.trust_permanently(GUIDE, WORDS)
    assert not trusted.is_trusted(GUIDE, WORDS)
    trusted.trust(GUIDE, WORDS)
    assert trusted.is_trusted(GUIDE, WORDS)
    assert not TrustStore(file).is_trusted(GUIDE, WORDS)
    file.rmdir()
    trusted.trust_permanently(GUIDE, WORDS)
    assert TrustStore(file).is_trusted(GUIDE, WORDS)


def test_partial_line_does_not_affect_others(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    file.write_bytes(b'{"path":"/wo\xff')
    TrustStore(file).trust_permanently(GUIDE, WORDS)
    assert TrustStore(file).is_trusted(GUIDE, WORDS)


def test_deleted_entry_is_no_longer_trusted(tmp_path: Path) -> None:
    file = tmp_path / "vouched"
    trusted = TrustStore(file)
    trusted.trust_permanently(GUIDE, WORDS)
    trusted.trust_permanently(GUIDE, b"Use spaces.")
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[1])
    assert not trusted.is_trusted(GUIDE, WORDS)
    assert trusted.is_trusted(GUIDE, b"Use spaces.")
    file.unlink()
    assert not trusted.is_trusted(GUIDE, b"Use spaces.")


def test_undecodable_name_is_stored(tmp_path: Path) -> None:
    file, odd = tmp_path / "vouched", Path("/work/\udcff/AGENTS.md")
    TrustStore(file).trust_permanently(odd, WORDS)
    assert TrustStore(file).is_trusted(odd, WORDS)
    assert not TrustStore(file).is_trusted(Path("/work/?/AGENTS.md"), WORDS)
