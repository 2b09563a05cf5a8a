"""Turn every uncaught error of the command line into a message and an exit code.

Imports are deferred because this also wraps `hermes --version`.
"""

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes.schema.errors import HermesError

CRASHED = 70
OUTPUT_LOST = 74
INTERRUPTED = 130
BROKEN_PIPE = 141


def run_guarded(verb: "Callable[..., int]", *args: object) -> int:
    """Run a command and flush its output; report errors on stderr and return the exit code."""
    try:
        _open_closed_streams()
        try:
            code = verb(*args)
        except SystemExit as ended:  # raised by argparse after --help
            code = ended.code if isinstance(ended.code, int) else 1
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:  # such as a full disk
            silence_stdout()
            return _report_write_error(error, "cannot write the output")
        else:
            return code
    except BrokenPipeError:
        silence_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost boundary: logged and reported
        return _report_error(error)


def print_error(error: "HermesError") -> None:
    """Write the error message and, on the next line, the hint."""
    hint = f"  {error.hint}\n" if error.hint else ""
    write_stderr(f"hermes: {error}\n{hint}")


def write_stderr(text: str) -> None:
    """Write to stderr with control characters escaped; ignore a closed stream."""
    text = "".join(
        char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text
    )
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return


def silence_stdout() -> None:
    """Redirect stdout to /dev/null, so that flushing at exit cannot fail after a broken pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Replace streams that the caller closed (`<&-`) with /dev/null.

    Characters that the terminal's encoding lacks are escaped instead of raising an error.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - open to the end
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - likewise
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - likewise
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _report_error(error: Exception) -> int:
    from hermes.schema.errors import HermesError

    if isinstance(error, HermesError):
        print_error(error)
        return error.exit_code
    if isinstance(error, OSError) and _disk_hint(error):
        return _report_write_error(error, f"cannot write {error.filename or 'a file'}")
    log_file = _log_crash(error)
    write_stderr(f"hermes: internal error: {type(error).__name__}: {error}\n")
    if log_file is not None:
        write_stderr(f"  This is a bug in Hermes. The traceback is in {log_file}\n")
    return CRASHED


def _disk_hint(error: OSError) -> str:
    """The hint for a full disk; empty for other errors."""
    from hermes.kit.files import write_error_hint

    return write_error_hint(error)


def _report_write_error(error: OSError, what: str) -> int:
    hint = _disk_hint(error)
    write_stderr(f"hermes: {what}: {error.strerror}\n" + (f"  {hint}\n" if hint else ""))
    return OUTPUT_LOST


def _log_crash(error: Exception) -> "Path | None":
    """Log the traceback and return the log file; without a log folder, write it to stderr."""
    import logging

    from hermes.config.env import Env, process_env
    from hermes.config.home import resolve_home
    from hermes.kit.errors import ConfigError
    from hermes.kit.redact import Redactor
    from hermes.logs import Logs, LogSettings

    try:
        folder = resolve_home(Env(process_env())).logs
    except ConfigError:
        folder = None
    if folder is None or not folder.is_dir():
        logging.getLogger(__name__).error("hermes crashed", exc_info=error)
        return None
    logs = Logs(folder, LogSettings(), Redactor(()))
    logging.getLogger(__name__).error("hermes crashed", exc_info=error)
    logs.close()
    return folder / "errors.log"
