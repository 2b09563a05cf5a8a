"""A change to learned files: its author, origin, reason and exact edits."""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath

from msgspec import Raw, Struct

from hermes.kit.errors import HermesError, UsageError
from hermes.kit.failpoints import failpoint
from hermes.kit.files import read_regular_file, write_atomic


class Author(StrEnum):
    """Who decided it. A review is the agent looking back after a turn."""

    PERSON = "person"
    AGENT = "agent"
    REVIEW = "review"
    CURATOR = "curator"


class ChangeState(StrEnum):
    """`APPLYING` is being written: after a crash it is completed on the next start."""

    APPLYING = "applying"
    APPLIED = "applied"
    UNDONE = "undone"
    FAILED = "failed"


class FileEdit(Struct, frozen=True):
    """One file in the home, before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class ChangeOrigin(Struct, frozen=True, kw_only=True):
    """Where it came from. `words` names the sources of untrusted content in the turn."""

    session: str = ""
    run: str = ""
    principal: str = ""
    words: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """`kind` is `memory` or `skill`, `name` which one; `summary` is one line for people.

    `undoes` is the id of the change that it reverts, if any.
    """

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    edits: tuple[FileEdit, ...]
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""
    undoes: str = ""


class LedgerEntry(Struct, frozen=True):
    change: Change
    state: ChangeState


class Proposal(Struct, frozen=True, kw_only=True):
    """A change that waits for a person's decision. `request` is read by the owner of the `kind`."""

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    request: Raw
    origin: ChangeOrigin = ChangeOrigin()
    why: str = ""


MAX_BYTES = 4 * 1024 * 1024
_LOCK_FILE = ".changes.lock"
_PRIVATE_MODE = 0o600


class FileConflict(HermesError):
    """A file is not in the state that the change expects."""

    code = "drifted"


def apply_edits(root: Path, edits: Sequence[FileEdit]) -> None:
    """Write every file; files already written by an interrupted attempt are skipped.

    Raises `FileConflict` before anything is written.
    """
    paths = [_checked_path(root, edit) for edit in edits]
    with edit_lock(root):
        for path, edit in zip(paths, edits, strict=True):
            found = read_if_present(path)
            if found not in {edit.before, edit.after}:
                raise FileConflict(
                    f"{edit.path} changed in the meantime, so it was not touched.",
                    hint="Check the file, then make the change again.",
                )
        for path, edit in zip(paths, edits, strict=True):
            if read_if_present(path) != edit.after:
                _write_file(root, path, edit.after)
                failpoint("ledger.one_file_written")


def read_if_present(path: Path) -> bytes | None:
    """Read a file; None if it does not exist. Raises `UsageError` for anything but a file."""
    try:
        return read_regular_file(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


@contextmanager
def edit_lock(root: Path) -> Generator[None]:
    """Allow one writer at a time, across processes; the kernel releases the lock of a dead one."""
    root.mkdir(parents=True, exist_ok=True)
    handle = os.open(
        root / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE_MODE
    )
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _checked_path(root: Path, edit: FileEdit) -> Path:
    parts = PurePosixPath(edit.path).parts
    if not parts or edit.path.startswith("/") or ".." in parts or "\0" in edit.path:
        raise UsageError(f"{edit.path!r} is not a path in the home.")
    return root.joinpath(*parts)


def _write_file(root: Path, path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, mode=None if path.exists() else _PRIVATE_MODE)
        return
    path.unlink(missing_ok=True)
    folder = path.parent
    while folder != root and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
