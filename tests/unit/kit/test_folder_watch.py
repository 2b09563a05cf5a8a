"""A folder that cannot be watched is reported, so that who watches can look at it instead."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from hermes.kit.folder_watch import folder_changes

pytestmark = pytest.mark.anyio


@contextmanager
def no_more_files() -> Iterator[None]:
    """No file can be opened, as when the limit of watches is reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_folder_that_cannot_be_watched_is_reported(tmp_path: Path) -> None:
    changes = folder_changes(tmp_path)
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        await anext(changes)


async def test_change_is_noticed(tmp_path: Path) -> None:
    changes = folder_changes(tmp_path)
    async with anyio.create_task_group() as group:

        async def write() -> None:
            while True:
                (tmp_path / "file").write_text("x")
                await anyio.sleep(0.001)

        group.start_soon(write)
        with anyio.fail_after(60):
            await anext(changes)
        group.cancel_scope.cancel()
    await changes.aclose()
