"""How a command is put to a shell so that it tells where it stood at the end."""

import re
import shlex
import shutil
from pathlib import Path

from msgspec import Struct

MAX_TIMEOUT = 600
MAX_COMMAND = 100_000
"""Bytes; the kernel takes a single argument of at most 128 KiB."""

_BASH = "exec {__out}>&1; "
_SH = "__out=8; exec 8>&1; "
_MARK = """{ read -r __mark </proc/sys/kernel/random/uuid; } 2>/dev/null || \
__mark=${SRANDOM:+$SRANDOM-$SRANDOM-$SRANDOM-$SRANDOM}; printf '\\036hermes:%s\\036' "$__mark"; \
trap "printf '\\\\036hermes:$__mark\\\\036%s %s\\\\036' \\"\\$?\\" \\"\\$PWD\\" >&$__out" EXIT; \
unset __mark; """
"""What only this shell and we know: it makes it up, and says it before anything else runs."""
_COMMAND = 'eval "set --; $1"'
_BASH_IF_ANY = 'if command -v bash >/dev/null; then exec bash "$@"; fi; exec sh "$@"'
_START_MARK = re.compile("\036hermes:([0-9a-f-]{16,64})\036")
_END_MARK = re.compile("\036hermes:([0-9a-f-]{16,64})\036(\\d{1,9}) ([^\036]*)\036(?!hermes:)")
_ANY_MARK = re.compile("\036hermes:[0-9a-f-]{0,64}\036(?:\\d{1,9} [^\036]*\036(?!hermes:))?")
"""Output that begins with a number follows the first mark as a code follows the last one; but
then another mark comes after it."""


class Shell(Struct, frozen=True):
    """`bash` tells which dialect the program at `path` speaks.

    Each of the files `begins` that is there is read by the shell before a command. `far` is one
    of a machine that we cannot look at: bash, if it has any.
    """

    path: str
    bash: bool
    begins: tuple[str, ...] = ()
    far: bool = False

    def argv(self, command: str) -> tuple[str, ...]:
        """A copy of stdout carries the mark, wherever the command sends its own output.

        The mark is not in the words of the shell, which every program on the machine can read.
        """
        prologue = (_BASH if self.bash else _SH) + _MARK
        name = "bash" if self.bash else "sh"
        return (*self._program, "-c", prologue + self._beginning + _COMMAND, name, command)

    def background_argv(self, command: str) -> tuple[str, ...]:
        """For a command whose folder at its end is nobody's business."""
        return (*self._program, "-c", f"{self._beginning}{command}")

    @property
    def _program(self) -> tuple[str, ...]:
        return (self.path, "-c", _BASH_IF_ANY, self.path) if self.far else (self.path,)

    @property
    def _beginning(self) -> str:
        """What they print is not the command's, nor may they eat what it is given to read."""
        words = map(_shell_path, self.begins)
        return "".join(f"[ -r {one} ] && . {one} </dev/null >/dev/null 2>&1; " for one in words)


def _shell_path(file: str) -> str:
    """The home is that of the machine where the shell is."""
    if file.startswith("~/"):
        return f'"$HOME"/{shlex.quote(file[2:])}'
    return shlex.quote(file)


def find_shell(path: str, begins: tuple[str, ...] = ()) -> Shell:
    """bash where there is one on this PATH, the system's sh otherwise."""
    bash = shutil.which("bash", path=path)
    return Shell(bash or "/bin/sh", bash=bash is not None, begins=begins)


def remote_shell(begins: tuple[str, ...] = ()) -> Shell:
    """For a machine or a container with programs of its own."""
    return Shell("sh", bash=False, begins=begins, far=True)


class ShellExit(Struct, frozen=True):
    """What a shell says at its end: its own exit code, and where it stood."""

    code: int
    folder: Path


def without_marks(output: str) -> str:
    return _ANY_MARK.sub("", output)


def find_shell_exit(begin: str, end: str) -> ShellExit | None:
    """What the shell said last, by the mark that it began with: others may print such, too."""
    begun = _START_MARK.search(begin)
    if begun is None:
        return None
    said = [found for found in _END_MARK.finditer(end) if found[1] == begun[1]]
    return ShellExit(int(said[-1][2]), Path(said[-1][3])) if said else None
