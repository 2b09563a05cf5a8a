"""Files that people send are stored, whatever their names."""

from pathlib import Path

import pytest

from hermes.channels.received_files import ReceivedFiles
from hermes.schema.messages import Text
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", ["\U00020000" * 80 + ".bin", "a" * 300 + ".bin", "../\ud800.bin"])
async def test_file_with_a_long_or_strange_name_is_stored(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "received"
    files = ReceivedFiles(FileBlobs(tmp_path / "blobs"), FakeClock(), folder=folder, most=100)
    _, note = await files.add(name, "application/octet-stream", b"data")
    (stored,) = folder.iterdir()
    assert stored.suffix == ".bin"
    assert stored.read_bytes() == b"data"
    assert isinstance(note, Text)
    assert str(stored) in note.text
