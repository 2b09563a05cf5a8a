"""Restore files from a checkpoint, through the same safe file operations as other changes."""

import os
import stat as modes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.checkpoints.repository import ShadowRepository, printable_name
from hermes.tools.files.file_changes import FileChange, apply_changes
from hermes.tools.files.safe_open import Forbids, open_folder

BATCH_BYTES = 32 << 20
"""Bytes of file contents held in memory at a time."""
LINK_MODE, PROGRAM_MODE = "120000", "100755"
_FILE_MODES = ("100644", PROGRAM_MODE, LINK_MODE)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Id of the empty tree."""


class RestoreStep(Struct, frozen=True):
    """A file to be written (`blob`) or removed (no blob)."""

    path: str
    mode: str = ""
    blob: str = ""


async def restore_steps(
    git: ShadowRepository, now: str, then: str, skipped: Sequence[str]
) -> list[RestoreStep]:
    """Return the steps from the current tree to the earlier one."""
    raw = await git.data("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", now, then)
    fields = raw.split(b"\0")
    not_saved = set(skipped)
    found: list[RestoreStep] = []
    for info, name in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, blob, _ = info.decode().split(" ")
        path = os.fsdecode(name)
        if mode in _FILE_MODES:
            found.append(RestoreStep(path, mode, blob))
        elif mode == "000000" and printable_name(path) not in not_saved:
            found.append(RestoreStep(path))
    return found


async def batches(git: ShadowRepository, wanted: Sequence[RestoreStep]) -> list[list[RestoreStep]]:
    """Group steps so that the contents of each batch fit in memory."""
    blobs = "".join(f"{step.blob}\n" for step in wanted).encode()
    sizes = await git.data("cat-file", "--batch-check=%(objectsize)", stdin=blobs)
    found: list[list[RestoreStep]] = []
    room = 0
    for step, size in zip(wanted, sizes.split(), strict=True):
        if not found or int(size) > room:
            found.append([])
            room = BATCH_BYTES
        found[-1].append(step)
        room -= int(size)
    return found


async def contents(git: ShadowRepository, wanted: Sequence[RestoreStep]) -> list[bytes]:
    blobs = "".join(f"{step.blob}\n" for step in wanted).encode()
    raw = await git.data("cat-file", "--batch", stdin=blobs)
    found: list[bytes] = []
    at = 0
    for _ in wanted:
        end = raw.index(b"\n", at)
        size = int(raw[at:end].split()[-1])
        found.append(raw[end + 1 : end + 1 + size])
        at = end + 2 + size
    return found


def restore_file(work: Path, step: RestoreStep, data: bytes, forbids: Forbids) -> None:
    """Raises `OSError` or `ToolError`."""
    path = work / step.path
    made: list[Path] = []
    with open_folder(path.parent, forbids, made) as folder:
        present = folder.stat(path.name)
        regular = present is not None and modes.S_ISREG(present.st_mode)
        if present is not None and not regular:
            folder.unlink(path.name)
            present = None
        if step.mode == LINK_MODE:
            if present is not None:
                folder.check(path.name, present)
                folder.unlink(path.name)
            folder.symlink(os.fsdecode(data), path.name)
            return
    mode = present.st_mode & 0o7777 if present is not None else 0o644
    mode = mode | 0o111 if step.mode == PROGRAM_MODE else mode & ~0o111
    before = None if present is None else b""
    apply_changes([FileChange(path, before, data, present, mode)], forbids)


def remove_file(work: Path, step: RestoreStep, forbids: Forbids) -> None:
    """Remove a file, and the folders that become empty."""
    path = work / step.path
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        open_folder(path.parent, forbids) as folder,
    ):
        present = folder.stat(path.name)
        if present is None:
            return
        if not modes.S_ISLNK(present.st_mode):
            folder.check(path.name, present)
        folder.unlink(path.name)
    for parent in path.parents:
        if parent == work:
            return
        try:
            with open_folder(parent.parent, forbids) as folder:
                folder.rmdir(parent.name)
        except (OSError, ToolError):
            return
