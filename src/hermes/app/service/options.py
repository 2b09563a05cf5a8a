"""Options of a gateway run, and its endings and exit codes."""

from enum import IntEnum, StrEnum

from msgspec import Struct


class RunOptions(Struct, frozen=True, kw_only=True):
    """`replace` stops a running gateway first; `force` skips the wait after repeated restarts.

    `ready_fd` is a pipe on which the starting process waits for readiness.
    """

    replace: bool = False
    force: bool = False
    verbose: int = 0
    quiet: bool = False
    ready_fd: int | None = None


class ExitCode(IntEnum):
    """Apart from these, 128 plus the number of the signal that ended it."""

    ENDED = 0
    FAILED = 1
    RESTART = 75
    WRONG_CONFIG = 78


class Ending(StrEnum):
    """How a gateway ended; `crashed` is inferred when nothing was recorded."""

    STOPPED = "stopped"
    RESTART = "restart"
    SIGNAL = "signal"
    FAILED = "failed"
    CRASHED = "crashed"


def exit_code(ending: Ending, signal: int = 0) -> int:
    """Return the process's exit code; an unannounced signal shows in it."""
    match ending:
        case Ending.STOPPED:
            return ExitCode.ENDED
        case Ending.RESTART:
            return ExitCode.RESTART
        case Ending.SIGNAL:
            return 128 + signal
        case Ending.FAILED | Ending.CRASHED:
            return ExitCode.FAILED
