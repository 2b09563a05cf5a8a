"""The system calls that a walled command is refused: doors that no file rule would close.

A filter is a small program for the kernel (classic BPF). It refuses socket families that are
not named, because sockets to the hypervisor and to the kernel's ciphers know no network
namespace, and calls that reach past the wall: other people's keys, io_uring (it opens sockets
unseen by any filter), tracing of the machine.
"""

import struct
import sys

from msgspec import Struct

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _MACHINE, _FAMILY = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001
_OTHER_TABLE = 0x40000000


class _Calls(Struct, frozen=True):
    """The numbers of one kind of machine; `refused` are io_uring, keys, bpf, perf, userfaultfd."""

    audit: int
    socket: int
    refused: tuple[int, ...]


_MACHINES = {
    "x86_64": _Calls(0xC000003E, 41, (425, 248, 249, 250, 321, 298, 323)),
    "aarch64": _Calls(0xC00000B7, 198, (425, 217, 218, 219, 280, 241, 282)),
}


def syscall_filter(machine: str, families: tuple[int, ...]) -> bytes | None:
    """None for a machine whose calls we do not know by number."""
    calls = _MACHINES.get(machine)
    if calls is None or sys.byteorder != "little":
        return None
    program = [
        *_load(_MACHINE), *_unless(_EQUAL, calls.audit, _REFUSE),
        *_load(_NUMBER), *_when(_AT_LEAST, _OTHER_TABLE, _REFUSE),
    ]  # fmt: skip
    for number in calls.refused:
        program += _when(_EQUAL, number, _REFUSE)
    program += _unless(_EQUAL, calls.socket, _ALLOW)
    program += _load(_FAMILY)
    for family in families:
        program += _when(_EQUAL, family, _ALLOW)
    program.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *line) for line in program)


def _load(offset: int) -> list[tuple[int, int, int, int]]:
    return [(_LOAD, 0, 0, offset)]


def _when(test: int, value: int, answer: int) -> list[tuple[int, int, int, int]]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, answer)]


def _unless(test: int, value: int, answer: int) -> list[tuple[int, int, int, int]]:
    return [(test, 1, 0, value), (_RETURN, 0, 0, answer)]
