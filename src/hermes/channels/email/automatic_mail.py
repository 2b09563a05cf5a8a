"""Recognize mail that was not written by a person: automatic replies, bounces, lists and loops."""

import re
from datetime import datetime, timedelta
from email.message import EmailMessage

from hermes.kit.lru_map import LruMap

LOOP_HEADER = "X-Loop"
"""Header that marks our own mails with our address."""
MAX_HOPS = 50
LOOP_WINDOW = timedelta(minutes=10)
MAX_THREADS = 2_000
SENDER_FACTOR = 3
_PRECEDENCES = frozenset({"bulk", "junk", "list", "auto_reply", "auto-reply"})
_LIST_HEADERS = ("List-Id", "List-Post", "List-Unsubscribe", "Mailing-List")
_REPLY_HEADERS = ("X-Autoreply", "X-Autorespond", "X-Autoresponder")
_REPORT = "multipart/report"
_NO_REPLY_SENDERS = re.compile(
    r"(mailer-daemon|postmaster|(no|do[-_.]?not)[-_.]?reply|bounces?)([-+_.=].*)?@", re.IGNORECASE
)


def reason_to_ignore(mail: EmailMessage, sender: str, own: str) -> str:
    """Return why this mail needs no answer; empty if it may need one."""
    loops = [address.strip().lower() for address in _values(mail, LOOP_HEADER)]
    submitted = _first(mail, "Auto-Submitted").partition(";")[0].strip()
    is_bounce = _first(mail, "Return-Path") == "<>" or mail.get_content_type() == _REPORT
    reasons = (
        (sender == own or own in loops, "it is our own"),
        (submitted not in {"", "no"}, "it was sent automatically (Auto-Submitted)"),
        (_first(mail, "Precedence") in _PRECEDENCES, "it is bulk mail (Precedence)"),
        (any(name in mail for name in _LIST_HEADERS), "it is from a mailing list"),
        (any(name in mail for name in _REPLY_HEADERS), "it is an automatic reply"),
        (is_bounce, "it is a bounce"),
        (bool(_NO_REPLY_SENDERS.match(sender)), "its sender does not accept replies"),
        (count_fields(mail, "Received") > MAX_HOPS, "it passed through too many servers"),
    )
    return next((reason for applies, reason in reasons if applies), "")


def count_fields(mail: EmailMessage, name: str) -> int:
    """Count the header fields of this name without parsing them: there may be thousands."""
    return [field.lower() for field in mail.keys()].count(name.lower())  # noqa: SIM118 - not a dict


class LoopGuard:
    """Counts the mails of each thread and sender: too many in ten minutes are not from a person.

    A sender may write `SENDER_FACTOR` times as many as one thread may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._mails: LruMap[tuple[str, str], dict[str, datetime]] = LruMap(MAX_THREADS)

    def is_loop(self, sender: str, thread: str, key: str, arrived: datetime) -> bool:
        """Count a mail once, even if fetched repeatedly; return whether there are too many."""
        of_thread = self._is_over((sender, thread), self._limit, key, arrived)
        return self._is_over((sender, ""), self._limit * SENDER_FACTOR, key, arrived) or of_thread

    def _is_over(self, what: tuple[str, str], limit: int, key: str, arrived: datetime) -> bool:
        start = arrived - LOOP_WINDOW
        earlier = self._mails.get(what) or {}
        mails = {mail: at for mail, at in earlier.items() if at > start} | {key: arrived}
        is_over = len(mails) > limit
        if is_over:
            # Bounded, and the thread stays silent while the loop goes on.
            del mails[next(iter(mails))]
        self._mails.put(what, mails)
        return is_over


def _first(mail: EmailMessage, name: str) -> str:
    values = _values(mail, name)
    return values[0].strip().lower() if values else ""


def _values(mail: EmailMessage, name: str) -> list[str]:
    return [str(value) for value in mail.get_all(name, [])]
