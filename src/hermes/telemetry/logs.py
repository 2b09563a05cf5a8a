"""Logging for one home: everything into agent.log, what went wrong also into errors.log.

Records are masked as they are written. No file is made before the first record,
and nothing ever goes to stdout. In a process that serves several homes, a record goes to
the home whose work it is about; what nobody's work wrote goes to the process's own home.
"""

import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from pathlib import Path

from msgspec import Struct

from hermes.kit.redact import Redactor
from hermes.telemetry.rotation import RotatingFile

FORMAT = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"

OURS = ("hermes", "asyncio", "aiohttp", "mcp", "client")
"""What is kept: our own loggers, and the warnings of what we run on; the last two are those of the
SDK for MCP. The rest is not ours."""


_AT_WORK_FOR: ContextVar[Path | None] = ContextVar("at_work_for", default=None)
"""Sorts log records and nothing else: whose logs the work of this context belongs to."""


_ABOUT: ContextVar[str] = ContextVar("about", default="")
"""Which session the work of this context is for, so that a log can be read by session."""


class AboutSession:
    """What is logged in this context, and in tasks that begin in it, names that session."""

    __slots__ = ("_session", "_token")

    def __init__(self, session: str) -> None:
        self._session = session

    def __enter__(self) -> None:
        self._token = _ABOUT.set(self._session)

    def __exit__(self, *_: object) -> None:
        _ABOUT.reset(self._token)


@contextmanager
def at_work_for(logs: Path) -> Generator[None]:
    """What is logged in this context, and in tasks that begin in it, belongs into that folder."""
    token = _AT_WORK_FOR.set(logs)
    try:
        yield
    finally:
        _AT_WORK_FOR.reset(token)


class _Only(logging.Filter):
    """Lets through what belongs to one folder, and, for the process's own, what is nobody's."""

    def __init__(self, folder: Path, *, ownerless: bool) -> None:
        super().__init__()
        self._folder = folder
        self._ownerless = ownerless

    def filter(self, record: logging.LogRecord) -> bool:
        folder = _AT_WORK_FOR.get()
        return self._ownerless if folder is None else folder == self._folder


class LogShare(Enum):
    """Which records a home's files get; with several homes in one process, not all."""

    EVERYTHING = auto()
    OWN = auto()
    OWN_AND_NOBODYS = auto()


class LogSettings(Struct, frozen=True, kw_only=True):
    level: str = "INFO"
    max_bytes: int = 5 * 1024 * 1024
    keep: int = 3


class FileLog(logging.Handler):
    """Writes masked records to a rotating file; a full disk is said once, on stderr."""

    def __init__(self, file: RotatingFile, redactor: Redactor, level: int) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter(FORMAT.replace("%(message)", "%(about)s%(message)")))
        self._file = file
        self._redactors = [redactor]
        self._complained = False

    def mask_also(self, redactor: Redactor) -> None:
        self._redactors.append(redactor)

    def emit(self, record: logging.LogRecord) -> None:
        session = _ABOUT.get()
        record.about = f"({session}) " if session else ""
        try:
            text = self.format(record)
            for redactor in self._redactors:
                text = redactor.redact(text)
            self._file.append(text.encode(errors="backslashreplace") + b"\n")
            self._complained = False
        except OSError as error:
            self._complain(error)
        except (TypeError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        # Another thread may be writing: its file may not become somebody else's meanwhile.
        self.acquire()
        try:
            self._file.close()
        finally:
            self.release()
        super().close()

    def _complain(self, error: OSError) -> None:
        if not self._complained and sys.stderr:
            self._complained = True
            sys.stderr.write(f"hermes: cannot write {self._file.path}: {error.strerror}\n")


class Logs:
    """The handlers of one process; `close` takes them off and puts the levels back."""

    def __init__(self, handlers: tuple[FileLog, ...], level: int) -> None:
        self._handlers = handlers
        self._loggers = [logging.getLogger(name) for name in OURS]
        self._before = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            wanted = level if logger.name == "hermes" else max(level, logging.WARNING)
            logger.setLevel(min(wanted, logger.level) if _is_ours(logger) else wanted)
            for handler in handlers:
                logger.addHandler(handler)

    def mask_also(self, redactor: Redactor) -> None:
        """Hide more values, such as those of another home served by the same process."""
        for handler in self._handlers:
            handler.mask_also(redactor)

    def close(self) -> None:
        for logger, level in zip(self._loggers, self._before, strict=True):
            for handler in self._handlers:
                logger.removeHandler(handler)
            if not _is_ours(logger):
                logger.setLevel(level)
        for handler in self._handlers:
            handler.close()


def set_up_logs(
    folder: Path,
    settings: LogSettings,
    redactor: Redactor,
    share: LogShare = LogShare.EVERYTHING,
) -> Logs:
    """Begin to log into `folder`; an unknown level means INFO."""
    level = level_of(settings.level)
    files = [("agent.log", level), ("errors.log", max(level, logging.WARNING))]
    handlers = tuple(
        FileLog(RotatingFile(folder / name, settings.max_bytes, settings.keep), redactor, at)
        for name, at in files
    )
    if share is not LogShare.EVERYTHING:
        only = _Only(folder, ownerless=share is LogShare.OWN_AND_NOBODYS)
        for handler in handlers:
            handler.addFilter(only)
    return Logs(handlers, level)


def _is_ours(logger: logging.Logger) -> bool:
    return any(isinstance(handler, FileLog) for handler in logger.handlers)


def level_of(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    return levels.get(name.strip().upper()) or logging.INFO
