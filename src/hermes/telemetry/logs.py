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

TALKATIVE = ("aiohttp", "asyncio", "urllib3", "httpx", "httpcore", "discord", "slack_sdk", "mcp")
"""Libraries whose chatter below a warning is not ours to keep."""


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
    """The handlers of one process, taken off again by `close`."""

    def __init__(self, handlers: tuple[FileLog, ...]) -> None:
        self._handlers = handlers

    def close(self) -> None:
        root = logging.getLogger()
        for handler in self._handlers:
            root.removeHandler(handler)
            handler.close()


def set_up_logs(folder: Path, settings: LogSettings, redactor: Redactor) -> Logs:
    """Begin to log into `folder`; an unknown level means INFO."""
    level = level_of(settings.level)
    files = [("agent.log", level), ("errors.log", max(level, logging.WARNING))]
    handlers = tuple(
        FileLog(RotatingFile(folder / name, settings.max_bytes, settings.keep), redactor, at)
        for name, at in files
    )
    root = logging.getLogger()
    root.setLevel(level)
    for handler in handlers:
        root.addHandler(handler)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    return Logs(handlers)


def level_of(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    return levels.get(name.strip().upper()) or logging.INFO
