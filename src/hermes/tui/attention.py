"""Get a person's attention when the terminal waits for them: bell, window title, notification."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from hermes.kit.clock import Clock
from hermes.kit.terminal_text import fit, single_line

NOTIFY_SECONDS = 15.0
"""Seconds after which an unanswered question is shown on the desktop."""
_MAX_TEXT = 120
_BELL = "\a"
_SAVE_TITLE, _RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_TITLE = "\x1b]2;{}\x07"
_NOTIFY_9 = "\x1b]9;{}\x07"
_NOTIFY_777 = "\x1b]777;notify;hermes;{}\x07"

WriteSequence: TypeAlias = Callable[[str], None]


def notification_sequence(env: Mapping[str, str]) -> str:
    """The sequence for a desktop notification: only one, because some terminals support both."""
    uses_777 = env.get("VTE_VERSION") or env.get("TERM", "").startswith(("rxvt", "foot"))
    return _NOTIFY_777 if uses_777 else _NOTIFY_9


class Attention:
    """Signals of one terminal. `write` sends escape sequences to it."""

    def __init__(self, write: WriteSequence, clock: Clock, notification: str) -> None:
        self._write = write
        self._clock = clock
        self._notification = notification
        self._text = ""
        self._notify_at = 0.0

    def call(self, text: str) -> None:
        """Ring the bell and show the text in the window title."""
        self.end()
        # A semicolon separates the fields of a notification.
        self._text = fit(single_line(text), _MAX_TEXT).replace(";", ",")
        self._notify_at = self._clock.monotonic() + NOTIFY_SECONDS
        self._write(_BELL + _SAVE_TITLE + _TITLE.format(f"● hermes: {self._text}"))

    def check(self) -> None:
        """Send the notification once it is time; call this about every second."""
        if self._text and self._clock.monotonic() >= self._notify_at:
            self._notify_at = float("inf")
            self._write(self._notification.format(self._text))

    def end(self) -> None:
        """The person answered: restore the window title."""
        if self._text:
            self._text = ""
            self._write(_RESTORE_TITLE)
