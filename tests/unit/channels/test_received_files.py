"""Files that people send are stored, whatever their names."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from hermes.channels.received_files import (
    ATTEMPTS,
    AttachedFile,
    ReceivedFiles,
    received_files,
)
from hermes.ports.channel import UnknownOutcome
from hermes.schema.messages import Text
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock, wait_until_idle
from support.channel_deps import admit_all, new_deps


@pytest.mark.parametrize("name", ["\U00020000" * 80 + ".bin", "a" * 300 + ".bin", "../\ud800.bin"])
async def test_file_with_a_long_or_strange_name_is_stored(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "received"
    blobs = FileBlobs(tmp_path / "blobs")
    received = ReceivedFiles(blobs, FakeClock(), folder=folder, max_bytes=100, admits=admit_all)
    _, note = await received.add(name, "application/octet-stream", b"data")
    (stored,) = folder.iterdir()
    assert stored.suffix == ".bin"
    assert stored.read_bytes() == b"data"
    assert isinstance(note, Text)
    assert str(stored) in note.text


async def test_smaller_limit_of_platform_and_settings_counts(tmp_path: Path) -> None:
    async def download() -> bytes:
        return bytes(2_000_001)

    for limit, platform in ((2_000_000, 5_000_000), (5_000_000, 2_000_000)):
        deps = structs.replace(new_deps("x", tmp_path, extra={}, env={}), max_file=limit)
        for size in (2_000_001, 0):
            file = AttachedFile(name="a.bin", media_type="application/octet-stream", size=size)
            (note,) = await received_files(deps, platform).fetch(file, download)
            assert note == Text("(file a.bin is not attached: it is larger than 2 MB.)")


async def test_download_with_an_unknown_outcome_is_tried_again_and_then_reported(
    tmp_path: Path,
) -> None:
    clock, tries = FakeClock(), 0
    blobs = FileBlobs(tmp_path / "blobs")
    received = ReceivedFiles(blobs, clock, folder=tmp_path, max_bytes=100, admits=admit_all)

    async def download() -> bytes:
        nonlocal tries
        tries += 1
        raise UnknownOutcome("HTTP 502")

    file = AttachedFile(name="plan.bin", media_type="application/octet-stream")
    fetch = asyncio.ensure_future(received.fetch(file, download))
    await wait_until_idle()
    for _ in range(ATTEMPTS - 1):
        await clock.advance(10)
    assert "the download failed" in str(await fetch)
    assert tries == ATTEMPTS
