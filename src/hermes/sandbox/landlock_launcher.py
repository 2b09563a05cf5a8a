"""Restrict this process with landlock and seccomp, then execute the command.

`landlock` runs this file as a script in the process to be restricted; it uses only the standard
library. Arguments: the seccomp filter in hex, `network` or `none`, `-r PATH` and `-w PATH` for
what may be read and changed, `--`, the working directory, and the command. Any failure ends the
process: a partly applied sandbox would be none.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys

# Only for type checkers: importing these would double the start-up time of a command.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
QUERY_VERSION = 1
PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL = 1 << 13, 1 << 14, 1 << 15
BASE_RIGHTS = (1 << 13) - 1
NET_RIGHTS = 3
SCOPES = 3
"""Abstract Unix sockets and signals do not reach processes outside."""

FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL

PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 23, 24, 38, 22
SECCOMP_MODE_FILTER = 2
CAPABILITIES_V3 = 0x20080522
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
"""Without `/dev/ptmx`: using it would require access to all terminals of the user."""
NOT_EXECUTED = 126
NOT_FOUND = 127


class Rights:
    """The rights the kernel can restrict, by the version of its interface."""

    def __init__(self, version: int) -> None:
        self.files = BASE_RIGHTS
        self.files |= REFER if version >= 2 else 0
        self.files |= TRUNCATE if version >= 3 else 0
        self.files |= IOCTL if version >= 5 else 0
        self.net = NET_RIGHTS if version >= 4 else 0
        self.scopes = SCOPES if version >= 6 else 0


def version(libc: ctypes.CDLL) -> int:
    """Return 0 where there is no landlock."""
    return max(0, libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), QUERY_VERSION))


def main(args: Sequence[str]) -> NoReturn:
    end = args.index("--")
    calls, network = bytes.fromhex(args[0]), args[1] == "network"
    folder, command = args[end + 1], list(args[end + 2 :])
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        env = original_env()
        restrict_self(libc, args[2:end], network=network)
        drop_capabilities(libc)
        filter_calls(libc, calls)
    except OSError as error:
        fail(f"landlock could not be applied: {error}", NOT_EXECUTED)
    try:
        os.chdir(folder)
    except OSError as error:
        fail(f"{folder}: {error.strerror}", NOT_EXECUTED)
    try:
        os.execve(command[0], command, env)  # noqa: S606 the purpose of this process
    except OSError as error:
        fail(f"{command[0]}: {error.strerror}", NOT_FOUND)


def original_env() -> dict[bytes, bytes]:
    """The environment from before the interpreter set a locale."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 no pathlib here
        pairs = file.read().split(b"\0")
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def restrict_self(libc: ctypes.CDLL, grants: Sequence[str], *, network: bool) -> None:
    rights = Rights(version(libc))
    attributes = struct.pack("=QQQ", rights.files, 0 if network else rights.net, rights.scopes)
    size = 24 if rights.scopes else 16 if rights.net else 8
    ruleset = checked(
        libc.syscall(CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0)
    )
    reading = EXECUTE | READ_FILE | READ_DIR
    allow(libc, ruleset, "/", READ_DIR)
    for flag, path in zip(grants[::2], grants[1::2], strict=True):
        allow(libc, ruleset, path, rights.files if flag == "-w" else reading)
    for path in (*DEVICES, *own_terminal()):
        allow(libc, ruleset, path, rights.files & (READ_FILE | WRITE_FILE | IOCTL | TRUNCATE))
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def own_terminal() -> list[str]:
    """The terminal's own path: programs reopen it by name."""
    try:
        return [os.ttyname(0)]
    except OSError:
        return []


def allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Skip paths that are gone or have been replaced by a link meanwhile."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if os.readlink(f"/proc/self/fd/{fd}") != path:  # noqa: PTH115 no pathlib here
        os.close(fd)
        return
    folder = stat.S_ISDIR(os.fstat(fd).st_mode)
    rule = struct.pack("=Qi", rights if folder else rights & FILE_RIGHTS, fd)
    checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.c_char_p(rule), 0))
    os.close(fd)


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop them also from what root would regain on exec."""
    number = 0
    while libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:
        if os.geteuid() == 0:
            checked(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
        number += 1
    header = struct.pack("=Ii", CAPABILITIES_V3, 0)
    checked(libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))))


def filter_calls(libc: ctypes.CDLL, program: bytes) -> None:
    lines = ctypes.create_string_buffer(program, len(program))
    pointer = ctypes.addressof(lines)
    filter_ = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, pointer))
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_, 0, 0))


def checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
    return result


def fail(why: str, code: int) -> NoReturn:
    os.write(2, f"hermes: {why}\n".encode())
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
