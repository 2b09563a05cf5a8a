"""A mailbox in memory: mails with UIDs and flags."""

from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct, field


class StoredMail(Struct):
    uid: int
    data: bytes
    at: datetime
    flags: set[str] = field(default_factory=set[str])


class EmulatedMailbox:
    """One folder of one account; `on_change` is called when mails or flags change."""

    def __init__(self, user: str, password: str, *, validity: int = 1) -> None:
        self.user = user
        self.password = password
        self.validity = validity
        self.mails: list[StoredMail] = []
        self.on_change: Callable[[], None] = lambda: None
        self._next = 1

    @property
    def next_uid(self) -> int:
        return self._next

    def append(self, data: bytes, flags: set[str] | None = None) -> int:
        """Deliver a mail; return its UID."""
        uid = self._next
        self._next += 1
        normal = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        now = datetime.now(UTC)
        self.mails.append(StoredMail(uid, normal, now, flags or set()))
        self.on_change()
        return uid

    def add_flag(self, uid: int, flag: str) -> None:
        for mail in self.mails:
            if mail.uid == uid:
                mail.flags.add(flag)
        self.on_change()

    def unseen(self) -> list[StoredMail]:
        return [mail for mail in self.mails if "\\Seen" not in mail.flags]

    def renumber(self) -> None:
        """Give all mails other UIDs, as a server does that restores a folder."""
        self.validity += 1
        for mail in self.mails:
            mail.uid, self._next = self._next, self._next + 1
        self.on_change()
