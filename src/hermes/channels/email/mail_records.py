"""Remember between runs how far a mailbox was read, and the subjects of threads."""

from datetime import datetime
from pathlib import Path

from msgspec import Struct

from hermes.channels.state_file import StateFile
from hermes.kit.errors import TemporaryError

MAX_THREADS = 1_000


class Cursor(Struct, frozen=True, kw_only=True):
    """All mails before `next_uid` are handled, while the folder has this `validity`."""

    validity: int
    next_uid: int
    at: datetime


class _File(Struct, kw_only=True):
    mailbox: str
    cursor: Cursor | None = None
    threads: dict[str, str] = {}


class MailRecords:
    """The records of one `mailbox` in a file; records of another mailbox there are ignored."""

    def __init__(self, path: Path, mailbox: str) -> None:
        self._path = path
        self._stored = StateFile(path, _File)
        stored = self._stored.read()
        # Without the file, unread mails are still found, and answered ones are recognized.
        usable = stored is not None and stored.mailbox == mailbox
        self._file = stored if stored is not None and usable else _File(mailbox=mailbox)

    @property
    def cursor(self) -> Cursor | None:
        return self._file.cursor

    def knows_thread(self, sender: str, thread: str) -> bool:
        return _name(sender, thread) in self._file.threads

    def subject(self, sender: str, thread: str) -> str:
        """Return the subject of a thread's first mail; empty if it is not known."""
        return self._file.threads.get(_name(sender, thread), "")

    def add_thread(self, sender: str, thread: str, subject: str) -> None:
        """Add a thread, to be stored with the next cursor; only the newest threads are kept."""
        threads, name = self._file.threads, _name(sender, thread)
        threads[name] = threads.pop(name, "") or subject
        while len(threads) > MAX_THREADS:
            del threads[next(iter(threads))]

    async def advance(self, cursor: Cursor) -> None:
        """Store how far the mailbox was read. Raises `TemporaryError`."""
        self._file.cursor = cursor
        try:
            await self._stored.write(self._file)
        except OSError as error:
            raise TemporaryError(f"{self._path} cannot be written: {error.strerror}.") from error


def _name(sender: str, thread: str) -> str:
    """Key a thread by sender, so that one sender's session never contains another's mails."""
    return f"{sender} {thread}"
