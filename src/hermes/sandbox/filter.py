"""The seccomp filter of a sandboxed command: system calls that no rule about files can restrict.

A filter is a small program for the kernel (classic BPF) that sees the number of a call and its
arguments, but not what a pointer leads to. It refuses

- socket families that are not named: sockets to the hypervisor and to the kernel's ciphers know no
  network namespace, and a Unix socket anywhere in the file system may belong to a program outside;
- modes with the setuid or setgid bit, which would outlive the sandbox;
- new namespaces and joining one, where the sandbox itself is not made of namespaces;
- other people's keys, io_uring (it opens sockets unseen by any filter), tracing of the machine.
"""

import stat
import struct
import sys

from msgspec import Struct

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE, _UNKNOWN_CALL = 0x7FFF0000, 0x00050001, 0x00050026
_OTHER_TABLE = 0x40000000

_TYPE_MASK, _STREAM, _SEQPACKET = 0xF, 1, 5
_CREATES = 0o100 | 0o20000000
"""`O_CREAT` and the bit of `O_TMPFILE`: without them the mode of `open` is not looked at."""

_FCHMODAT2, _OPENAT2 = 452, 437
_XATTR_AT = (463, 466)
_FILE_SETATTR = 469
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""`FS_IOC_SETFLAGS`, the same of 32-bit programs, and `FS_IOC_FSSETXATTR`."""

_CLONE3 = 435
_NEW_NAMESPACE = 0x7E020000
"""The `CLONE_NEW*` bits of `clone`, whose lowest byte is a signal."""
_NEW_TIME = 0x80
"""`CLONE_NEWTIME`, for `unshare` alone."""

_Line = tuple[int, int, int, int]


class _Calls(Struct, frozen=True, kw_only=True):
    """The numbers of one kind of machine; `refused` are io_uring, keys, bpf, perf, userfaultfd.

    `modes` are calls that set a mode, with the position of that argument; `opens` take flags and
    then a mode from that position on. `owners` change the owner, the group, an extended
    attribute, such as an access control list, or a flag, which `ioctl` does as well.
    """

    audit: int
    socket: int
    socketpair: int
    refused: tuple[int, ...]
    modes: dict[int, int]
    opens: dict[int, int]
    owners: tuple[int, ...]
    ioctl: int
    clone: int
    unshare: int
    setns: int


_MACHINES = {
    "x86_64": _Calls(
        audit=0xC000003E,
        socket=41,
        socketpair=53,
        refused=(425, 248, 249, 250, 321, 298, 323),
        modes={90: 1, 91: 1, 268: 2, _FCHMODAT2: 2, 85: 1, 133: 1, 259: 2},
        opens={2: 1, 257: 2},
        owners=(92, 93, 94, 260, 188, 189, 190, 197, 198, 199, *_XATTR_AT, _FILE_SETATTR),
        ioctl=16,
        clone=56,
        unshare=272,
        setns=308,
    ),
    "aarch64": _Calls(
        audit=0xC00000B7,
        socket=198,
        socketpair=199,
        refused=(425, 217, 218, 219, 280, 241, 282),
        modes={52: 1, 53: 2, _FCHMODAT2: 2, 33: 2},
        opens={56: 2},
        owners=(54, 55, 5, 6, 7, 14, 15, 16, *_XATTR_AT, _FILE_SETATTR),
        ioctl=29,
        clone=220,
        unshare=97,
        setns=268,
    ),
}


def syscall_filter(
    machine: str,
    families: tuple[int, ...],
    *,
    root: bool,
    ownership: bool = True,
    namespaces: bool = True,
) -> bytes | None:
    """None for a machine whose calls we do not know by number.

    For `root` the setgid bit is refused as well; other users share folders with it. Without
    `ownership` neither owners, extended attributes nor flags of files can be changed; without
    `namespaces` none can be made or joined.
    """
    calls = _MACHINES.get(machine)
    if calls is None or sys.byteorder != "little":
        return None
    program = [
        *_load(_MACHINE), *_unless(_EQUAL, calls.audit, _REFUSE),
        *_load(_NUMBER), *_when(_AT_LEAST, _OTHER_TABLE, _REFUSE),
    ]  # fmt: skip
    for number in (*calls.refused, *(() if ownership else calls.owners)):
        program += _when(_EQUAL, number, _REFUSE)
    if not ownership:
        program += _on(calls.ioctl, _none_of(1, _SET_FLAGS))
    if not namespaces:
        program += _same_namespaces(calls)
    program += _modes(calls, stat.S_ISUID | (stat.S_ISGID if root else 0))
    if UNIX not in families:
        program += _on(calls.socketpair, _connected_pair())
    program += _on(calls.socket, _one_of(families))
    program.append(_answer(_ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in program)


def _modes(calls: _Calls, bits: int) -> list[_Line]:
    """The mode of `openat2` lies in memory; programs do without that call where it is unknown."""
    program = _when(_EQUAL, _OPENAT2, _UNKNOWN_CALL)
    for number, at in calls.modes.items():
        program += _on(number, _without(at, bits))
    for number, at in calls.opens.items():
        creates = [*_argument(at), *_unless(_ANY_BIT, _CREATES, _ALLOW)]
        program += _on(number, [*creates, *_without(at + 1, bits)])
    return program


def _same_namespaces(calls: _Calls) -> list[_Line]:
    """The flags of `clone3` lie in memory; the C library uses `clone` where it is unknown."""
    return [
        *_when(_EQUAL, calls.setns, _REFUSE),
        *_when(_EQUAL, _CLONE3, _UNKNOWN_CALL),
        *_on(calls.clone, _without(0, _NEW_NAMESPACE)),
        *_on(calls.unshare, _without(0, _NEW_NAMESPACE | _NEW_TIME)),
    ]


def _none_of(argument: int, values: tuple[int, ...]) -> list[_Line]:
    refused = [line for value in values for line in _when(_EQUAL, value, _REFUSE)]
    return [*_argument(argument), *refused, _answer(_ALLOW)]


def _without(argument: int, bits: int) -> list[_Line]:
    return [*_argument(argument), *_when(_ANY_BIT, bits, _REFUSE), _answer(_ALLOW)]


def _connected_pair() -> list[_Line]:
    """Sockets that stay connected to each other; with others a datagram could go to any path."""
    types = (_when(_EQUAL, kind, _ALLOW) for kind in (_STREAM, _SEQPACKET))
    masked = [*_argument(1), (_AND, 0, 0, _TYPE_MASK)]
    family = [*_argument(0), *_unless(_EQUAL, UNIX, _REFUSE)]
    return [*family, *masked, *(line for one in types for line in one), _answer(_REFUSE)]


def _one_of(families: tuple[int, ...]) -> list[_Line]:
    allowed = [line for family in families for line in _when(_EQUAL, family, _ALLOW)]
    return [*_argument(0), *allowed, _answer(_REFUSE)]


def _on(number: int, block: list[_Line]) -> list[_Line]:
    """For one call; the block gives an answer, so that what follows still has the number."""
    return [(_EQUAL, 0, len(block), number), *block]


def _argument(position: int) -> list[_Line]:
    return _load(_ARGUMENTS + 8 * position)


def _load(offset: int) -> list[_Line]:
    return [(_LOAD, 0, 0, offset)]


def _answer(answer: int) -> _Line:
    return (_RETURN, 0, 0, answer)


def _when(test: int, value: int, answer: int) -> list[_Line]:
    return [(test, 0, 1, value), _answer(answer)]


def _unless(test: int, value: int, answer: int) -> list[_Line]:
    return [(test, 1, 0, value), _answer(answer)]
