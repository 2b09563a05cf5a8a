"""Put bytes in the place of a file in one step, or in the places of several: all or none.

The new bytes are on the disk before anything is replaced, so a disk that is full loses nothing;
and what is replaced keeps a second name until all is done, so that going back needs no room.
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
    """A file's bytes before and after; None stands for no file.

    `path` is a real one. With `stat` the file must still be the one that was looked at.
    `mode` sets the permissions, which otherwise stay.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    stat: os.stat_result | None = None
    mode: int | None = None


class _StagedChange(Struct, kw_only=True):
    """A change whose new bytes wait under the name `new`, and whose old ones got the name `old`."""

    change: FileChange
    new: str = ""
    old: str = ""
    done: bool = False


def apply_changes(changes: Sequence[FileChange], forbids: Forbids) -> list[Path]:
    """The folders that were made. Raises `OSError` or `ToolError`; then everything is as it was."""
    made: list[Path] = []
    staged: list[_StagedChange] = []
    try:
        for change in changes:
            staged.append(_StagedChange(change=change))
            _stage(staged[-1], forbids, made)
        for one in staged:
            _replace_file(one, forbids, keep=len(staged) > 1)
    except BaseException:
        for one in reversed(staged):
            _roll_back(one, forbids)
        for folder in reversed(made):
            with suppress(OSError, ToolError), open_folder(folder.parent, forbids) as parent:
                parent.rmdir(folder.name)
        raise
    for one in staged:
        _remove_file(one.change.path.parent, one.old, forbids)
    return made


def _stage(one: _StagedChange, forbids: Forbids, made: list[Path]) -> None:
    """Write the new bytes beside the file, dressed as it is."""
    change = one.change
    name = change.path.name
    adding = made if change.after is not None else None
    with open_folder(change.path.parent, forbids, adding) as folder:
        present = _check_unchanged(folder, change)
        if present is not None:
            folder.check_writable(name)
        if change.after is None:
            return
        one.new = _temporary_name()
        handle = folder.create(one.new)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(change.after)
                file.flush()
                _copy_metadata(file.fileno(), change, present)
                os.fsync(file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(change.path)) from error


def _check_unchanged(folder: OpenFolder, change: FileChange) -> os.stat_result | None:
    """The file as it is now. Raises `ToolError` when it is not the one that was looked at."""
    name = change.path.name
    present = folder.stat(name)
    if present is None:
        if change.before is not None:
            raise ToolError(f"{change.path} vanished meanwhile; nothing was changed.")
        return None
    folder.check(name, present)
    strange = change.before is None
    if change.stat is not None:
        strange = _stamp(present) != _stamp(change.stat)
    if strange:
        raise ToolError(
            f"{change.path} was changed by somebody else meanwhile; nothing was changed.",
            hint="Read it again.",
        )
    return present


def _stamp(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def _copy_metadata(handle: int, change: FileChange, present: os.stat_result | None) -> None:
    """Owner, attributes and permissions of the old file; the owner first, it clears the rest."""
    mode = modes.S_IMODE(present.st_mode) if present is not None else NEW_MODE
    if present is not None:
        mine = os.fstat(handle)
        if (mine.st_uid, mine.st_gid) != (present.st_uid, present.st_gid):
            mode = _copy_owner(handle, present, mode)
    os.fchmod(handle, change.mode if change.mode is not None else mode)


def _copy_owner(handle: int, present: os.stat_result, mode: int) -> int:
    """Raises `PermissionError` when the new file cannot belong to whom the old one did."""
    try:
        os.fchown(handle, present.st_uid, present.st_gid)
    except PermissionError:
        if os.fstat(handle).st_uid != present.st_uid:
            raise PermissionError(
                errno.EPERM, "the file belongs to another user, who would lose it"
            ) from None
        return mode & ~modes.S_ISGID
    return mode


def _replace_file(one: _StagedChange, forbids: Forbids, *, keep: bool) -> None:
    change = one.change
    name = change.path.name
    with open_folder(change.path.parent, forbids) as folder:
        present = _check_unchanged(folder, change)
        if keep and present is not None:
            spare = _temporary_name()
            with suppress(OSError):
                folder.link(name, spare)
                one.old = spare
        if change.after is not None:
            folder.rename(one.new, name)
            one.new = ""
        elif present is not None:
            folder.unlink(name)
        one.done = True


def _roll_back(one: _StagedChange, forbids: Forbids) -> None:
    """As it was; a second name needs no room on the disk, the bytes are for where links fail."""
    change = one.change
    name = change.path.name
    with suppress(OSError, ToolError):
        _remove_file(change.path.parent, one.new, forbids)
        if not one.done:
            _remove_file(change.path.parent, one.old, forbids)
            return
        with open_folder(change.path.parent, forbids) as folder:
            if one.old:
                folder.rename(one.old, name)
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
