"""Rotating log files shared by several processes, per home and session."""

import fcntl
import logging
import os
import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from hermes.kit.redact import Redactor


@contextmanager
def rotation_lock(folder: Path, kind: int = fcntl.LOCK_SH) -> Generator[None]:
    """Hold the lock of a log directory; while it is shared, no file of it is rotated."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, kind)
        yield
    finally:
        os.close(fd)


class RotatingFile(Struct):
    """Appends whole records; a full file becomes `.1`, that one `.2`, and so on.

    Nothing is opened before the first record. Each record is one write, so records of several
    processes do not mix; the process that finds the file full rotates it under a lock, and the
    others notice that it has moved.
    """

    path: Path
    max_bytes: int
    keep: int
    _fd: int | None = None

    def append(self, record: bytes) -> None:
        fd = self._fd
        try:
            is_ours = fd is not None and os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            is_ours = False
        if fd is None or not is_ours:  # another process rotated or removed it
            fd = self._reopen()
        if self.max_bytes and 0 < os.fstat(fd).st_size > self.max_bytes - len(record):
            fd = self._rotate(len(record))
        os.write(fd, record)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _reopen(self) -> int:
        if self._fd is not None:
            self.close()
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        return self._fd

    def _rotate(self, size: int) -> int:
        with rotation_lock(self.path.parent, fcntl.LOCK_EX):
            fd = self._reopen()
            if 0 < os.fstat(fd).st_size > self.max_bytes - size:
                self._shift()
        return self._reopen()

    def _shift(self) -> None:
        files = [self.path, *(Path(f"{self.path}.{one}") for one in range(1, self.keep + 1))]
        if not self.keep:
            self.path.unlink()
        for file, next_file in reversed(list(pairwise(files))):
            if file.exists():
                file.replace(next_file)


FORMAT = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"

LOGGERS = ("hermes", "asyncio", "aiohttp", "mcp", "client")
"""Our own loggers, and the warnings of important libraries; the last two belong to the MCP SDK."""


_LOG_FOLDER: ContextVar[Path | None] = ContextVar("log_folder", default=None)
"""The current context's log directory; used for routing log records only."""

_SESSION: ContextVar[str] = ContextVar("log_session", default="")
"""The current context's session, shown in each log line."""


@contextmanager
def log_session(session: str) -> Generator[None]:
    """Log records in this context, and in tasks started in it, name the session."""
    token = _SESSION.set(session)
    try:
        yield
    finally:
        _SESSION.reset(token)


@contextmanager
def log_to(logs: Path) -> Generator[None]:
    """Write this context's log records, and those of tasks started in it, to that directory."""
    token = _LOG_FOLDER.set(logs)
    try:
        yield
    finally:
        _LOG_FOLDER.reset(token)


class LogScope(Enum):
    """Which records go to a home's files if one process serves several homes."""

    EVERYTHING = auto()
    OWN = auto()
    OWN_AND_SHARED = auto()


class LogSettings(Struct, frozen=True, kw_only=True):
    level: str = "INFO"
    max_bytes: int = 5 * 1024 * 1024
    keep: int = 3


class FileLogHandler(logging.Handler):
    """Writes redacted records to a rotating file; reports a full disk once, on stderr."""

    def __init__(
        self,
        file: RotatingFile,
        redactor: Redactor,
        level: int,
        folders: Collection[Path | None] | None = None,
    ) -> None:
        """`folders`: the log directories whose records are written; None means all records."""
        super().__init__(level)
        self._folders = folders
        self.setFormatter(logging.Formatter(FORMAT.replace("%(message)", "%(session)s%(message)")))
        self._file = file
        self._redactors = [redactor]
        self._reported = False

    def add_redactor(self, redactor: Redactor) -> None:
        self._redactors.append(redactor)

    def emit(self, record: logging.LogRecord) -> None:
        if self._folders is not None and _LOG_FOLDER.get() not in self._folders:
            return
        session = _SESSION.get()
        record.session = f"({session}) " if session else ""
        try:
            text = self.format(record)
            for redactor in self._redactors:
                text = redactor.redact(text)
            self._file.append(text.encode(errors="backslashreplace") + b"\n")
            self._reported = False
        except OSError as error:
            if not self._reported and sys.stderr:
                self._reported = True
                sys.stderr.write(f"hermes: cannot write {self._file.path}: {error.strerror}\n")
        except (TypeError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        # Another thread may be writing: its file descriptor must not be reused meanwhile.
        self.acquire()
        try:
            self._file.close()
        finally:
            self.release()
        super().close()


class Logs:
    """A process's log handlers; `close` removes them and restores the levels."""

    def __init__(
        self,
        folder: Path,
        settings: LogSettings,
        redactor: Redactor,
        scope: LogScope = LogScope.EVERYTHING,
    ) -> None:
        """Start logging to `folder`; an unknown level means INFO."""
        level = logging.getLevelNamesMapping().get(settings.level.strip().upper()) or logging.INFO
        files = {"agent.log": level, "errors.log": max(level, logging.WARNING)}
        folders: Collection[Path | None] | None = None
        if scope is not LogScope.EVERYTHING:
            folders = {folder} if scope is LogScope.OWN else {folder, None}
        self._handlers = [
            FileLogHandler(
                RotatingFile(folder / name, settings.max_bytes, settings.keep),
                redactor,
                least,
                folders,
            )
            for name, least in files.items()
        ]
        self._loggers = [logging.getLogger(name) for name in LOGGERS]
        self._before = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            own_level = level if logger.name == "hermes" else max(level, logging.WARNING)
            logger.setLevel(min(own_level, logger.level) if _is_ours(logger) else own_level)
            for handler in self._handlers:
                logger.addHandler(handler)

    def add_redactor(self, redactor: Redactor) -> None:
        """Redact more values, such as those of another home served by this process."""
        for handler in self._handlers:
            handler.add_redactor(redactor)

    def close(self) -> None:
        for logger, level in zip(self._loggers, self._before, strict=True):
            for handler in self._handlers:
                logger.removeHandler(handler)
            if not _is_ours(logger):
                logger.setLevel(level)
        for handler in self._handlers:
            handler.close()


def _is_ours(logger: logging.Logger) -> bool:
    return any(isinstance(handler, FileLogHandler) for handler in logger.handlers)
