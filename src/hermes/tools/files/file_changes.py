"""Replace one file atomically, or several all-or-nothing.

All new contents are written before anything is replaced, so a full disk loses nothing; replaced
files keep a second name until the end, so rolling back needs no space.
"""

import errno
import os
import stat as modes
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from msgspec import Struct

from hermes.schema.errors import ToolError
from hermes.tools.files.safe_open import Forbids, OpenFolder, open_folder

NEW_MODE = 0o644


class FileChange(Struct, frozen=True):
    """A file's content before and after; None means no file.

    `path` must be resolved. With `stat` the file must still be the one that was read. `mode` sets
    the permissions, which are kept otherwise.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    stat: os.stat_result | None = None
    mode: int | None = None


class _StagedChange(Struct, kw_only=True):
    """A change whose new content is stored as `new`, and whose old file was linked as `old`."""

    change: FileChange
    new: str = ""
    old: str = ""
    done: bool = False


def apply_changes(changes: Sequence[FileChange], forbids: Forbids) -> list[Path]:
    """Apply all changes or none; return the folders created. Raises `OSError`, `ToolError`."""
    made: list[Path] = []
    staged: list[_StagedChange] = []
    try:
        for change in changes:
            staged.append(_StagedChange(change=change))
            _stage(staged[-1], forbids, made)
        for entry in staged:
            _replace_file(entry, forbids, keep=len(staged) > 1)
    except BaseException:
        for entry in reversed(staged):
            _roll_back(entry, forbids)
        for folder in reversed(made):
            with suppress(OSError, ToolError), open_folder(folder.parent, forbids) as parent:
                parent.rmdir(folder.name)
        raise
    for entry in staged:
        _remove_file(entry.change.path.parent, entry.old, forbids)
    return made


def _stage(staged: _StagedChange, forbids: Forbids, made: list[Path]) -> None:
    """Write the new content next to the file, with its metadata."""
    change = staged.change
    name = change.path.name
    created = made if change.after is not None else None
    with open_folder(change.path.parent, forbids, created) as folder:
        present = _check_unchanged(folder, change)
        if present is not None:
            folder.check_writable(name)
        if change.after is None:
            return
        staged.new = _temporary_name()
        handle = folder.create(staged.new)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(change.after)
                file.flush()
                _copy_metadata(file.fileno(), change, present)
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(change.path)) from error


def _check_unchanged(folder: OpenFolder, change: FileChange) -> os.stat_result | None:
    """Return the file's current stat. Raises `ToolError` if it is not the one that was read."""
    name = change.path.name
    present = folder.stat(name)
    if present is None:
        if change.before is not None:
            raise ToolError(f"{change.path} was deleted meanwhile; nothing was changed.")
        return None
    folder.check(name, present)
    changed = change.before is None
    if change.stat is not None:
        changed = _stamp(present) != _stamp(change.stat)
    if changed:
        raise ToolError(
            f"{change.path} was changed by another program meanwhile; nothing was changed.",
            hint="Read it again.",
        )
    return present


def _stamp(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _copy_metadata(handle: int, change: FileChange, present: os.stat_result | None) -> None:
    """Copy owner and permissions of the old file; the owner first, as it resets the mode."""
    mode = modes.S_IMODE(present.st_mode) if present is not None else NEW_MODE
    if present is not None:
        created = os.fstat(handle)
        if (created.st_uid, created.st_gid) != (present.st_uid, present.st_gid):
            mode = _copy_owner(handle, present, mode)
    os.fchmod(handle, change.mode if change.mode is not None else mode)


def _copy_owner(handle: int, present: os.stat_result, mode: int) -> int:
    """Raises `PermissionError` if the new file cannot get the old one's owner."""
    try:
        os.fchown(handle, present.st_uid, present.st_gid)
    except PermissionError:
        if os.fstat(handle).st_uid != present.st_uid:
            raise PermissionError(
                errno.EPERM, "the file belongs to another user and would change its owner"
            ) from None
        return mode & ~modes.S_ISGID
    return mode


def _replace_file(staged: _StagedChange, forbids: Forbids, *, keep: bool) -> None:
    change = staged.change
    name = change.path.name
    with open_folder(change.path.parent, forbids) as folder:
        present = _check_unchanged(folder, change)
        if keep and present is not None:
            spare = _temporary_name()
            with suppress(OSError):
                folder.link(name, spare)
                staged.old = spare
        if change.after is not None:
            folder.rename(staged.new, name)
            staged.new = ""
        elif present is not None:
            folder.unlink(name)
        staged.done = True


def _roll_back(staged: _StagedChange, forbids: Forbids) -> None:
    """Undo a change: rename the old file back, or rewrite its content if linking failed."""
    change = staged.change
    name = change.path.name
    with suppress(OSError, ToolError):
        _remove_file(change.path.parent, staged.new, forbids)
        if not staged.done:
            _remove_file(change.path.parent, staged.old, forbids)
            return
        with open_folder(change.path.parent, forbids) as folder:
            if staged.old:
                folder.rename(staged.old, name)
            elif change.before is None:
                folder.unlink(name)
            else:
                _write_back(folder, change)


def _write_back(folder: OpenFolder, change: FileChange) -> None:
    spare = _temporary_name()
    with os.fdopen(folder.create(spare), "wb") as file:
        file.write(change.before or b"")
        os.fchmod(file.fileno(), modes.S_IMODE(change.stat.st_mode) if change.stat else NEW_MODE)
    folder.rename(spare, change.path.name)


def _remove_file(where: Path, name: str, forbids: Forbids) -> None:
    if name:
        with suppress(OSError, ToolError), open_folder(where, forbids) as folder:
            folder.unlink(name)


def _temporary_name() -> str:
    return f".hermes-{token_hex(8)}.tmp"
