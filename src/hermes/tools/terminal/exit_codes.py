"""Say what an exit code means, so that "no match" is not taken for a failure."""

import re
import shlex
import signal
from enum import Enum, auto

from hermes.ports.sandbox import ProcessExit, ProcessResult

_SEARCH = dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack"), "nothing matched")
_BENIGN: dict[str, str] = {
    **_SEARCH,
    "diff": "the files differ",
    "cmp": "the files differ",
    "test": "the condition is false",
    "[": "the condition is false",
    "[[": "the condition is false",
    "which": "the program was not found",
    "pgrep": "no process matched",
}
"""What exit code 1 of these programs says; none of it is an error."""
_SPECIAL: dict[tuple[str, int], str] = {
    ("find", 1): "some folders could not be read",
    ("pytest", 1): "some tests failed",
    ("pytest", 5): "no tests were collected",
    ("curl", 6): "the host name could not be resolved",
    ("curl", 7): "the connection was refused",
    ("curl", 22): "the server answered with an error status",
    ("curl", 28): "the transfer timed out",
    ("git", 128): "git refused: see its message",
    ("timeout", 124): "the command took longer than the given time",
}
_SHELL = {
    2: "wrong usage or a syntax error",
    126: "the file is not executable",
    127: "the program was not found",
}
_WITHOUT_END_MARK = re.compile(r"\b(exec|trap)\b")
_PREFIXES = {"sudo", "env", "time", "nice", "nohup", "command", "exec", "xargs"}


def shell_exit_code(exit_code: int) -> int:
    """A death by signal `n` as the shell counts it: 128 + n."""
    return 128 - exit_code if exit_code < 0 else exit_code


def is_benign(command: str, exit_code: int) -> bool:
    return exit_code == 0 or (exit_code == 1 and last_program(command) in _BENIGN)


class ExitCause(Enum):
    """Whether a code above 128 tells of a signal: it does, it need not, or nobody knows."""

    BY_SIGNAL = auto()
    BY_ITSELF = auto()
    UNKNOWN = auto()


def exit_cause(done: ProcessResult | ProcessExit, command: str, said: int | None) -> ExitCause:
    """`said` is the code with which the shell says that it ends; one that is killed says none.

    One that was replaced, or told not to, says none either. A signal that bash hears of is
    followed by another code than the one that comes through.
    """
    if done.exit_code >= 0 or (done.unsure and said == shell_exit_code(done.exit_code)):
        return ExitCause.BY_ITSELF
    silent = done.unsure and said is None and _WITHOUT_END_MARK.search(command)
    return ExitCause.UNKNOWN if silent else ExitCause.BY_SIGNAL


def background_exit_meaning(ended: ProcessExit, command: str) -> str:
    """Of a command in the background: the door knows, unless the wall told it both alike."""
    how = ExitCause.UNKNOWN if ended.unsure else exit_cause(ended, command, None)
    return exit_meaning(command, shell_exit_code(ended.exit_code), how)


def exit_meaning(command: str, exit_code: int, how: ExitCause = ExitCause.BY_SIGNAL) -> str:
    """One clause for the model, or nothing when the code says nothing special."""
    if exit_code == 0:
        return ""
    program = last_program(command)
    if exit_code == 1 and program in _BENIGN:
        return f"{_BENIGN[program]} (not an error)"
    if (program, exit_code) in _SPECIAL:
        return _SPECIAL[program, exit_code]
    if exit_code > 128:
        return _signal_meaning(exit_code - 128, how)
    return _SHELL.get(exit_code, "")


def last_program(command: str) -> str:
    """The name of the program whose code the shell reports; a guess that only explains."""
    lexer = shlex.shlex(command.strip().replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    program = ""
    fresh = True
    try:
        for word in lexer:
            if not set(word) - set("|&;()"):
                fresh = True
            elif fresh and not _is_prefix(word):
                program, fresh = word, False
    except ValueError:  # an open quote: the shell complained as well
        return program.rpartition("/")[2]
    return program.rpartition("/")[2]


def _is_prefix(word: str) -> bool:
    return word in _PREFIXES or word.startswith("-") or re.match(r"\w+=", word) is not None


def _signal_meaning(number: int, how: ExitCause) -> str:
    known = {
        signal.SIGINT: "interrupted",
        signal.SIGKILL: "killed, possibly out of memory",
        signal.SIGSEGV: "crashed with a memory fault",
        signal.SIGABRT: "aborted itself",
        signal.SIGPIPE: "its reader went away",
        signal.SIGTERM: "ended from outside",
    }
    try:
        name = signal.Signals(number)
    except ValueError:
        return ""
    told = f"{known.get(name, 'ended by a signal')} ({name.name})"
    match how:
        case ExitCause.BY_SIGNAL:
            return told
        case ExitCause.BY_ITSELF:
            return f"the shell ended by itself; a program in it was {told}, or chose this code"
        case ExitCause.UNKNOWN:
            return f"{told}, or it chose this code"
