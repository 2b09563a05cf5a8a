"""How a gateway is asked to run, and what its exit codes say to whoever started it."""

from enum import IntEnum, StrEnum

from msgspec import Struct


class RunOptions(Struct, frozen=True, kw_only=True):
    """`replace` ends a gateway that runs already; `force` does not wait after a storm of starts.

    `ready_fd` is a pipe on which whoever started us waits for the word that we are ready.
    """

    replace: bool = False
    force: bool = False
    verbose: int = 0
    quiet: bool = False
    ready_fd: int | None = None


class ExitCode(IntEnum):
    """Besides these, 128 and the number of the signal that ended it."""

    ENDED = 0
    FAILED = 1
    RESTART = 75
    WRONG_CONFIG = 78


class Ending(StrEnum):
    """How a gateway came to its end; `crashed` is what a later one finds when nothing was said."""

    STOPPED = "stopped"
    RESTART = "restart"
    SIGNAL = "signal"
    FAILED = "failed"
    CRASHED = "crashed"


def exit_code(ending: Ending, signal: int = 0) -> int:
    """What the process returns; a signal that nobody announced shows in the code."""
    match ending:
        case Ending.STOPPED:
            return ExitCode.ENDED
        case Ending.RESTART:
            return ExitCode.RESTART
        case Ending.SIGNAL:
            return 128 + signal
        case Ending.FAILED | Ending.CRASHED:
            return ExitCode.FAILED
