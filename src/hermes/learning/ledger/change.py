"""A change to what the agent knows: who made it, from whose words, why, and every byte of it."""

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
    """Whose decision it was. A review is the agent looking back after a turn."""

    PERSON = "person"
    AGENT = "agent"
    REVIEW = "review"
    CURATOR = "curator"


class ChangeState(StrEnum):
    """`APPLYING` is on its way to the disk: a crash there is made good at the next look."""

    APPLYING = "applying"
    APPLIED = "applied"
    UNDONE = "undone"
    FAILED = "failed"


class FileEdit(Struct, frozen=True):
    """One file under the home, before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class ChangeOrigin(Struct, frozen=True, kw_only=True):
    """Where it came from. `words` names strangers whose words were in the turn: a page, a file."""

    session: str = ""
    run: str = ""
    principal: str = ""
    words: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """`kind` is `memory` or `skill`, `name` which one; `summary` is one line for people.

    `undoes` is the id of the change that it takes back, if it does.
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
    """A change that waits for a person. `request` is for whoever makes changes of this kind."""

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
    """A file is not as it was when the change was made."""

    code = "drifted"


def apply_edits(root: Path, edits: Sequence[FileEdit]) -> None:
    """Write every file. What an earlier, interrupted attempt has written already is left so.

    Raises `Drifted` before anything is written.
    """
    paths = [_checked_path(root, edit) for edit in edits]
    with edit_lock(root):
        for path, edit in zip(paths, edits, strict=True):
            found = read_if_present(path)
            if found not in {edit.before, edit.after}:
                raise FileConflict(
                    f"{edit.path} was changed in the meantime, so it was left as it is.",
                    hint="Look at the file, then make the change again.",
                )
        for path, edit in zip(paths, edits, strict=True):
            if read_if_present(path) != edit.after:
                _write_file(root, path, edit.after)
                failpoint("ledger.one_file_written")


def read_if_present(path: Path) -> bytes | None:
    """What is in the file; None when there is none. Raises `UsageError` for what is no file."""
    try:
        return read_regular_file(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error


@contextmanager
def edit_lock(root: Path) -> Generator[None]:
    """One writer at a time, also among processes; the kernel frees it at death."""
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
        raise UsageError(f"{edit.path!r} is no file below the home.")
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
