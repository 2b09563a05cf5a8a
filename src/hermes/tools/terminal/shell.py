"""How a command is put to a shell so that it tells where it stood at the end."""

import re
import secrets
import shutil
from pathlib import Path

from msgspec import Struct

MAX_TIMEOUT = 600
MAX_COMMAND = 100_000
"""Bytes; the kernel takes a single argument of at most 128 KiB."""

_BASH = (
    """exec {__out}>&1; trap 'printf "\\036MARK\\036%s %s\\036" "$?" "$PWD" >&"$__out"' EXIT; """
)
_SH = """exec 8>&1; trap 'printf "\\036MARK\\036%s %s\\036" "$?" "$PWD" >&8' EXIT; """
_COMMAND = 'eval "set --; $1"'


class Shell(Struct, frozen=True):
    """`bash` tells which dialect the program at `path` speaks."""

    path: str
    bash: bool

    def argv(self, command: str, mark: str) -> tuple[str, ...]:
        """A copy of stdout carries the mark, wherever the command sends its own output."""
        prologue = (_BASH if self.bash else _SH).replace("MARK", mark)
        name = "bash" if self.bash else "sh"
        return (self.path, "-c", prologue + _COMMAND, name, command)

    def plain_argv(self, command: str) -> tuple[str, ...]:
        """For a command whose folder at its end is nobody's business."""
        return (self.path, "-c", command)


def find_shell(path: str) -> Shell:
    """bash where there is one on this PATH, the system's sh otherwise."""
    bash = shutil.which("bash", path=path)
    return Shell(bash, bash=True) if bash else Shell("/bin/sh", bash=False)


def new_mark() -> str:
    return f"hermes-{secrets.token_hex(8)}"


class Mark(Struct, frozen=True):
    """What a shell says at its end: its own exit code, and where it stood."""

    code: int
    folder: Path


def split_mark(output: str, mark: str) -> tuple[str, Mark | None]:
    """The output without the mark, and what it says."""
    found = re.search(f"\036{mark}\036(\\d{{1,9}}) ([^\036]*)\036", output)
    if found is None:
        return output, None
    said = Mark(int(found[1]), Path(found[2]))
    return output[: found.start()] + output[found.end() :], said
