"""A folder that cannot be watched is reported, so that the caller can poll instead."""

import os
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import anyio
import pytest

from hermes.kit.folder_watch import folder_changes
from support.polling import wait_until


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


async def test_folders_share_one_instance_and_each_gets_its_own_changes(tmp_path: Path) -> None:
    before = inotify_files()
    folders = [tmp_path / str(number) for number in range(20)]
    seen: Counter[Path] = Counter()
    gone: list[Path] = []

    async def watch(folder: Path) -> None:
        try:
            async with aclosing(folder_changes(folder)) as changes:
                async for _ in changes:
                    seen[folder] += 1
        except FileNotFoundError:
            gone.append(folder)

    async with anyio.create_task_group() as group:
        for folder in folders:
            folder.mkdir()
            group.start_soon(watch, folder)
            group.start_soon(watch, folder)
        await anyio.wait_all_tasks_blocked()
        assert inotify_files() == before + 1
        (folders[7] / "file").write_text("x")
        await wait_until(lambda: seen[folders[7]] >= 2)
        assert [*seen] == [folders[7]]
        for folder in folders:
            shutil.rmtree(folder)
    assert sorted(gone) == sorted([*folders, *folders])
    assert inotify_files() == before


def inotify_files() -> int:
    links = [*Path("/proc/self/fd").iterdir()]
    return sum(one.is_symlink() and "inotify" in str(one.readlink()) for one in links)


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
