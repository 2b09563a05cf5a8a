"""Build the seccomp filter of sandboxed commands, for what file rules cannot restrict.

A filter is a small kernel program (classic BPF) that sees the number of a system call and its
arguments, but not the memory behind pointers. It refuses

- socket families that are not listed: sockets to the hypervisor and to the kernel's ciphers have
  no network namespace, and a Unix socket in the file system may belong to an outside program;
- modes with the setuid or setgid bit, which would outlive the sandbox;
- creating or joining namespaces, where the sandbox itself does not use namespaces;
- the keys of others, io_uring (it opens sockets unseen by any filter) and system tracing.
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
"""`O_CREAT` and the bit of `O_TMPFILE`: without them the mode of `open` is ignored."""

_FCHMODAT2, _OPENAT2 = 452, 437
_XATTR_AT = (463, 466)
_FILE_SETATTR = 469
_SET_FLAGS = (0x40086602, 0x40046602, 0x401C5820)
"""`FS_IOC_SETFLAGS`, its 32-bit variant, and `FS_IOC_FSSETXATTR`."""

_CLONE3 = 435
_NEW_NAMESPACE = 0x7E020000
"""The `CLONE_NEW*` bits of `clone`, whose lowest byte is a signal."""
_NEW_TIME = 0x80
"""`CLONE_NEWTIME`, only for `unshare`."""

_Instruction = tuple[int, int, int, int]


class _SyscallTable(Struct, frozen=True, kw_only=True):
    """System call numbers of an architecture; `refused` are io_uring, keys, bpf, perf, userfaultfd.

    `modes` are calls that set a mode, with the position of that argument; `opens` take flags and a
    mode from that position on. `owners` change the owner, group, extended attributes (such as
    access control lists) or flags of a file, as `ioctl` does too.
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


_SYSCALL_TABLES = {
    "x86_64": _SyscallTable(
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
    "aarch64": _SyscallTable(
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
    """Build the filter; None for an architecture whose call numbers are unknown.

    For `root` the setgid bit is refused as well, since other users share its folders. Without
    `ownership`, owners, extended attributes and flags of files cannot be changed; without
    `namespaces`, none can be created or joined.
    """
    calls = _SYSCALL_TABLES.get(machine)
    if calls is None or sys.byteorder != "little":
        return None
    program = [
        *_load(_MACHINE), *_return_unless(_EQUAL, calls.audit, _REFUSE),
        *_load(_NUMBER), *_return_if(_AT_LEAST, _OTHER_TABLE, _REFUSE),
    ]  # fmt: skip
    for number in (*calls.refused, *(() if ownership else calls.owners)):
        program += _return_if(_EQUAL, number, _REFUSE)
    if not ownership:
        program += _for_syscall(calls.ioctl, _none_of(1, _SET_FLAGS))
    if not namespaces:
        program += _same_namespaces(calls)
    program += _mode_rules(calls, stat.S_ISUID | (stat.S_ISGID if root else 0))
    if UNIX not in families:
        program += _for_syscall(calls.socketpair, _allow_connected_pairs())
    program += _for_syscall(calls.socket, _allow_families(families))
    program.append(_return(_ALLOW))
    return b"".join(struct.pack("<HBBI", *line) for line in program)


def _mode_rules(calls: _SyscallTable, bits: int) -> list[_Instruction]:
    """Refuse mode bits. `openat2` has its mode in memory; programs work without it."""
    program = _return_if(_EQUAL, _OPENAT2, _UNKNOWN_CALL)
    for number, at in calls.modes.items():
        program += _for_syscall(number, _refuse_bits(at, bits))
    for number, at in calls.opens.items():
        creates = [*_load_argument(at), *_return_unless(_ANY_BIT, _CREATES, _ALLOW)]
        program += _for_syscall(number, [*creates, *_refuse_bits(at + 1, bits)])
    return program


def _same_namespaces(calls: _SyscallTable) -> list[_Instruction]:
    """Refuse new namespaces. `clone3` has its flags in memory; the C library can use `clone`."""
    return [
        *_return_if(_EQUAL, calls.setns, _REFUSE),
        *_return_if(_EQUAL, _CLONE3, _UNKNOWN_CALL),
        *_for_syscall(calls.clone, _refuse_bits(0, _NEW_NAMESPACE)),
        *_for_syscall(calls.unshare, _refuse_bits(0, _NEW_NAMESPACE | _NEW_TIME)),
    ]


def _none_of(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    refused = [line for value in values for line in _return_if(_EQUAL, value, _REFUSE)]
    return [*_load_argument(argument), *refused, _return(_ALLOW)]


def _refuse_bits(argument: int, bits: int) -> list[_Instruction]:
    return [*_load_argument(argument), *_return_if(_ANY_BIT, bits, _REFUSE), _return(_ALLOW)]


def _allow_connected_pairs() -> list[_Instruction]:
    """Allow only pairs that stay connected; others could send datagrams to any path."""
    types = (_return_if(_EQUAL, kind, _ALLOW) for kind in (_STREAM, _SEQPACKET))
    masked = [*_load_argument(1), (_AND, 0, 0, _TYPE_MASK)]
    family = [*_load_argument(0), *_return_unless(_EQUAL, UNIX, _REFUSE)]
    return [*family, *masked, *(line for one in types for line in one), _return(_REFUSE)]


def _allow_families(families: tuple[int, ...]) -> list[_Instruction]:
    allowed = [line for family in families for line in _return_if(_EQUAL, family, _ALLOW)]
    return [*_load_argument(0), *allowed, _return(_REFUSE)]


def _for_syscall(number: int, block: list[_Instruction]) -> list[_Instruction]:
    """Apply a block to one call; it must return, so that later blocks still see the number."""
    return [(_EQUAL, 0, len(block), number), *block]


def _load_argument(position: int) -> list[_Instruction]:
    return _load(_ARGUMENTS + 8 * position)


def _load(offset: int) -> list[_Instruction]:
    return [(_LOAD, 0, 0, offset)]


def _return(answer: int) -> _Instruction:
    return (_RETURN, 0, 0, answer)


def _return_if(test: int, value: int, answer: int) -> list[_Instruction]:
    return [(test, 0, 1, value), _return(answer)]


def _return_unless(test: int, value: int, answer: int) -> list[_Instruction]:
    return [(test, 1, 0, value), _return(answer)]
