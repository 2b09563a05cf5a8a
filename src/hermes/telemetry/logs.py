"""Logging for one home: everything into agent.log, what went wrong also into errors.log.

Records are masked as they are written. No file is made before the first record,
and nothing ever goes to stdout.
"""

import logging
import sys
from pathlib import Path

from msgspec import Struct

from hermes.kit.redact import Redactor
from hermes.telemetry.rotation import RotatingFile

FORMAT = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"

OURS = ("hermes", "asyncio", "aiohttp")
"""What is kept: our own loggers, and the warnings of what we run on. The rest is not ours."""


class LogSettings(Struct, frozen=True, kw_only=True):
    level: str = "INFO"
    max_bytes: int = 5 * 1024 * 1024
    keep: int = 3


class FileLog(logging.Handler):
    """Writes masked records to a rotating file; a full disk is said once, on stderr."""

    def __init__(self, file: RotatingFile, redactor: Redactor, level: int) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter(FORMAT))
        self._file = file
        self._redactor = redactor
        self._complained = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self._redactor.redact(self.format(record))
            self._file.append(text.encode(errors="backslashreplace") + b"\n")
            self._complained = False
        except OSError as error:
            self._complain(error)
        except (TypeError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        self._file.close()
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
            logger.setLevel(level if logger.name == "hermes" else max(level, logging.WARNING))
            for handler in handlers:
                logger.addHandler(handler)

    def close(self) -> None:
        for logger, level in zip(self._loggers, self._before, strict=True):
            logger.setLevel(level)
            for handler in self._handlers:
                logger.removeHandler(handler)
        for handler in self._handlers:
            handler.close()


def set_up_logs(folder: Path, settings: LogSettings, redactor: Redactor) -> Logs:
    """Begin to log into `folder`; an unknown level means INFO."""
    level = level_of(settings.level)
    files = [("agent.log", level), ("errors.log", max(level, logging.WARNING))]
    handlers = tuple(
        FileLog(RotatingFile(folder / name, settings.max_bytes, settings.keep), redactor, at)
        for name, at in files
    )
    return Logs(handlers, level)


def level_of(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    return levels.get(name.strip().upper()) or logging.INFO
