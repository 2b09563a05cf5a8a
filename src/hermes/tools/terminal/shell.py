"""Wrap a command for the shell so that it reports its end, and explain exit codes."""

import re
import shlex
import shutil
import signal
from enum import Enum, auto
from pathlib import Path

from msgspec import Struct

from hermes.ports.sandbox import ProcessExit, ProcessResult

MAX_TIMEOUT = 600
MAX_COMMAND = 100_000
"""In bytes; the kernel limits one argument to 128 KiB."""

_BASH = "exec {__out}>&1; "
_SH = "__out=8; exec 8>&1; "
_MARK = """{ read -r __mark </proc/sys/kernel/random/uuid; } 2>/dev/null || \
__mark=${SRANDOM:+$SRANDOM-$SRANDOM-$SRANDOM-$SRANDOM}; printf '\\036hermes:%s\\036' "$__mark"; \
trap "printf '\\\\036hermes:$__mark\\\\036%s %s\\\\036' \\"\\$?\\" \\"\\$PWD\\" >&$__out" EXIT; \
unset __mark; """
"""Make the shell create a random mark and print it before the command runs.

Only the shell and we know it, so the command cannot forge the exit report.
"""
_COMMAND = 'eval "set --; $1"'
_BASH_IF_ANY = 'if command -v bash >/dev/null; then exec bash "$@"; fi; exec sh "$@"'
_START_MARK = re.compile("\036hermes:([0-9a-f-]{16,64})\036")
_END_MARK = re.compile("\036hermes:([0-9a-f-]{16,64})\036(\\d{1,9}) ([^\036]*)\036(?!hermes:)")
_ANY_MARK = re.compile("\036hermes:[0-9a-f-]{0,64}\036(?:\\d{1,9} [^\036]*\036(?!hermes:))?")
"""Output starting with a number may follow the first mark like an exit code; then another mark
follows it, which the lookahead excludes.
"""


class Shell(Struct, frozen=True):
    """A shell program; `bash` tells whether `path` is bash or plain sh.

    `startup_files` are sourced before each command, if they exist. `remote` means a shell on
    another machine, which uses bash if it is installed.
    """

    path: str
    bash: bool
    startup_files: tuple[str, ...] = ()
    remote: bool = False

    def argv(self, command: str) -> tuple[str, ...]:
        """Build the command line; the mark goes to a copy of stdout, safe from redirections.

        The mark is not on the command line, which every process on the machine can read.
        """
        prologue = (_BASH if self.bash else _SH) + _MARK
        name = "bash" if self.bash else "sh"
        return (*self._program, "-c", prologue + self._source_startup + _COMMAND, name, command)

    def background_argv(self, command: str) -> tuple[str, ...]:
        """Build the command line of a background command, which reports no folder."""
        return (*self._program, "-c", f"{self._source_startup}{command}")

    @property
    def _program(self) -> tuple[str, ...]:
        return (self.path, "-c", _BASH_IF_ANY, self.path) if self.remote else (self.path,)

    @property
    def _source_startup(self) -> str:
        """Source the startup files, without their output and without access to stdin."""
        paths = map(_shell_path, self.startup_files)
        return "".join(f"[ -r {path} ] && . {path} </dev/null >/dev/null 2>&1; " for path in paths)


def _shell_path(file: str) -> str:
    """Quote a path; `~` is expanded by the shell, which may run on another machine."""
    if file.startswith("~/"):
        return f'"$HOME"/{shlex.quote(file[2:])}'
    return shlex.quote(file)


def find_shell(path: str, startup_files: tuple[str, ...] = ()) -> Shell:
    """Find bash on this PATH, or fall back to the system's sh."""
    bash = shutil.which("bash", path=path)
    return Shell(bash or "/bin/sh", bash=bash is not None, startup_files=startup_files)


def remote_shell(startup_files: tuple[str, ...] = ()) -> Shell:
    """Return a shell for a machine or container with its own programs."""
    return Shell("sh", bash=False, startup_files=startup_files, remote=True)


class ShellExit(Struct, frozen=True):
    """What a shell reports at its end: its exit code and working directory."""

    code: int
    folder: Path


def without_marks(output: str) -> str:
    return _ANY_MARK.sub("", output)


def find_shell_exit(begin: str, end: str) -> ShellExit | None:
    """Return the shell's last report, identified by its start mark, which output cannot forge."""
    start = _START_MARK.search(begin)
    if start is None:
        return None
    reports = [found for found in _END_MARK.finditer(end) if found[1] == start[1]]
    return ShellExit(int(reports[-1][2]), Path(reports[-1][3])) if reports else None


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
"""Programs whose exit code 1 is not an error, and what it means."""
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
    """Convert a death by signal `n` to the shell's code, 128 + n."""
    return 128 - exit_code if exit_code < 0 else exit_code


def is_benign(command: str, exit_code: int) -> bool:
    return exit_code == 0 or (exit_code == 1 and last_program(command) in _BENIGN)


class ExitCause(Enum):
    """Whether an exit code above 128 stands for a signal."""

    BY_SIGNAL = auto()
    BY_ITSELF = auto()
    UNKNOWN = auto()


def exit_cause(done: ProcessResult | ProcessExit, command: str, reported: int | None) -> ExitCause:
    """Tell whether a command ended by a signal; `reported` is the exit code the shell printed.

    A shell that was killed prints none, and neither does one that was replaced by `exec` or whose
    `trap` was changed. After a signal bash prints another code than the one it exits with.
    """
    if done.exit_code >= 0 or (done.unsure and reported == shell_exit_code(done.exit_code)):
        return ExitCause.BY_ITSELF
    silent = done.unsure and reported is None and _WITHOUT_END_MARK.search(command)
    return ExitCause.UNKNOWN if silent else ExitCause.BY_SIGNAL


def background_exit_meaning(ended: ProcessExit, command: str) -> str:
    """Explain the exit of a background process; only the sandbox may be unsure about a signal."""
    how = ExitCause.UNKNOWN if ended.unsure else exit_cause(ended, command, None)
    return exit_meaning(command, shell_exit_code(ended.exit_code), how)


def exit_meaning(command: str, exit_code: int, how: ExitCause = ExitCause.BY_SIGNAL) -> str:
    """Return one clause for the model, or nothing if the code needs no explanation."""
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
    """Guess the program whose exit code the shell reports; used only for explanations."""
    lexer = shlex.shlex(command.strip().replace("\n", ";"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    program = ""
    at_start = True
    try:
        for word in lexer:
            if not set(word) - set("|&;()"):
                at_start = True
            elif at_start and not _is_prefix(word):
                program, at_start = word, False
    except ValueError:  # an open quote: the shell reported it as well
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
        signal.SIGPIPE: "the reader of its output exited",
        signal.SIGTERM: "terminated",
    }
    try:
        name = signal.Signals(number)
    except ValueError:
        return ""
    text = f"{known.get(name, 'ended by a signal')} ({name.name})"
    match how:
        case ExitCause.BY_SIGNAL:
            return text
        case ExitCause.BY_ITSELF:
            return f"the shell exited by itself; a program in it was {text}, or chose this code"
        case ExitCause.UNKNOWN:
            return f"{text}, or it chose this code"
