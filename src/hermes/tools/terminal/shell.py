"""Wrap a command for the shell so that it reports its exit code and final folder."""

import re
import shlex
import shutil
from pathlib import Path

from msgspec import Struct

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
    """What a shell reports at its end: its exit code and working folder."""

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
