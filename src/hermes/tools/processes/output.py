"""Keep a process's output, redacted, in memory and in a file, and watch it for patterns."""

import codecs
import logging
import os
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

from hermes.kit.clock import Clock
from hermes.kit.files import surplus_files
from hermes.tools.terminal.output_cleaner import StreamCleaner, strip_controls

log = logging.getLogger(__name__)

MAX_KEPT = 200_000
"""Characters kept in memory."""
LOG_LIMIT = 64 * 1024 * 1024
MAX_LOGS = 100
MAX_LOG_BYTES = 512 * 1024 * 1024
"""Total size of all logs, except those of running processes."""
_JOINED_SIZE = 4_096
"""Small pieces are joined up to this many characters."""
_CUT_NOTICE = "\n[the rest was not kept]\n"


class ProcessOutput:
    """Turns bytes into readable, redacted lines; an incomplete line is held back."""

    def __init__(self, redact: Callable[[str], str], file: Path | None) -> None:
        self.dropped = 0
        """Characters that are no longer in memory."""
        self._cleaner = StreamCleaner(lambda text: redact(strip_controls(text)))
        self._file = file
        self._handle: int | None = None
        self._written = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pieces: deque[str] = deque()
        self._size = 0

    def add(self, data: bytes) -> str:
        """Return the lines that are complete now."""
        return self._keep(self._cleaner.add(self._decoder.decode(data)))

    def finish(self) -> str:
        last = self._cleaner.add(self._decoder.decode(b"", final=True))
        text = self._keep(last + self._cleaner.finish())
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return text

    @property
    def text(self) -> str:
        """The text in memory, including the incomplete line."""
        return "".join(self._pieces) + self._cleaner.pending

    def tail(self, length: int) -> str:
        """Return the end of the output without joining all of it."""
        found = [self._cleaner.pending]
        size = len(found[0])
        for piece in reversed(self._pieces):
            if size >= length:
                break
            found.append(piece)
            size += len(piece)
        return "".join(reversed(found))[-length:]

    @property
    def file(self) -> str:
        """Path of the log, or empty if there is none."""
        return str(self._file) if self._file is not None and self._written else ""

    def _keep(self, text: str) -> str:
        if not text:
            return ""
        self._write(text)
        kept = text[-MAX_KEPT:]
        self.dropped += len(text) - len(kept)
        self._size += len(kept)
        if self._pieces and len(self._pieces[-1]) + len(kept) <= _JOINED_SIZE:
            self._pieces[-1] += kept
        else:
            self._pieces.append(kept)
        while self._size - len(self._pieces[0]) >= MAX_KEPT:
            gone = len(self._pieces.popleft())
            self._size -= gone
            self.dropped += gone
        return text

    def _write(self, text: str) -> None:
        if self._file is None or self._written > LOG_LIMIT:
            return
        try:
            if self._handle is None:
                self._handle = _open_log(self._file)
            data = text.encode("utf-8", "replace")
            _write_all(self._handle, data)
            self._written += len(data)
            if self._written > LOG_LIMIT:
                _write_all(self._handle, _CUT_NOTICE.encode())
        except OSError as error:
            log.warning("cannot keep the output in %s: %s", self._file, error)
            self._file = None


def prune_logs(folder: Path, spared: Collection[str]) -> None:
    """Delete old logs, separately for the owner and everyone else, except those in use."""
    for pattern in ("proc_*.log", "of-*/proc_*.log"):
        ended = (file for file in folder.glob(pattern) if str(file) not in spared)
        for file in surplus_files(ended, MAX_LOGS, MAX_LOG_BYTES):
            with suppress(OSError):
                file.unlink()


def read_log_tail(file: str, length: int) -> str:
    """Return the end of a log that an earlier process wrote."""
    try:
        with Path(file).open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(stream.tell() - 4 * length, 0))
            return stream.read().decode("utf-8", "replace")[-length:]
    except OSError:
        return ""


def _open_log(file: Path) -> int:
    if not file.parent.is_dir():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


NOTICE_WINDOW = 15.0
"""Seconds in which a process sends at most one notice."""
MAX_STRIKES = 3
"""Consecutive windows with more than one match after which a watch ends."""
MAX_NOTICES, NOTICE_PERIOD, COOLDOWN = 15, 10.0, 30.0
"""Notices of all processes in a period of seconds, and seconds of silence once exceeded."""


class NoticeLimit:
    """Rate limit for the notices of all processes of a profile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: deque[float] = deque()
        self._silent_until = float("-inf")

    def allows(self) -> bool:
        """Count one more notice and return whether it may be sent."""
        now = self._clock.monotonic()
        if now < self._silent_until:
            return False
        while self._sent and now - self._sent[0] >= NOTICE_PERIOD:
            self._sent.popleft()
        if len(self._sent) >= MAX_NOTICES:
            self._silent_until = now + COOLDOWN
            return False
        self._sent.append(now)
        return True


class WatchAction(Enum):
    """What to do about a match: send a notice, ignore it, or end the watch."""

    NOTIFY = auto()
    IGNORE = auto()
    END = auto()


class OutputWatch:
    """Watches the output of one process for literal patterns."""

    def __init__(self, patterns: tuple[str, ...], clock: Clock, limit: NoticeLimit) -> None:
        self._patterns = patterns
        self._clock = clock
        self._limit = limit
        self._window_ends = float("-inf")
        self._strikes = 0
        self._struck = False
        self.left_out = 0
        """Matching lines not reported since the last notice."""

    @property
    def patterns(self) -> tuple[str, ...]:
        return self._patterns

    def matches(self, text: str) -> list[str]:
        if not any(pattern in text for pattern in self._patterns):
            return []
        return [
            line for line in text.splitlines() if any(pattern in line for pattern in self._patterns)
        ]

    def judge(self, lines: int) -> WatchAction:
        """Decide what to do about so many matching lines."""
        now = self._clock.monotonic()
        if now < self._window_ends:
            return self._strike(lines)
        if not self._limit.allows():
            self.left_out += lines
            return WatchAction.IGNORE
        if not self._struck:
            self._strikes = 0
        self._struck = False
        self._window_ends = now + NOTICE_WINDOW
        return WatchAction.NOTIFY

    def _strike(self, lines: int) -> WatchAction:
        self.left_out += lines
        if not self._struck:
            self._struck = True
            self._strikes += 1
        if self._strikes < MAX_STRIKES:
            return WatchAction.IGNORE
        self._patterns = ()
        return WatchAction.END
