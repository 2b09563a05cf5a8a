"""The seccomp filter, interpreted like the kernel does."""

import struct

import pytest

from hermes.sandbox.seccomp import INET, UNIX, syscall_filter

ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026
X86, ARM = 0xC000003E, 0xC00000B7


def evaluate(program: bytes, machine: int, number: int, *arguments: int) -> int:
    data = struct.pack("<IIQ6Q", number, machine, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    lines = [*struct.iter_unpack("<HBBI", program)]
    index = value = 0
    while True:
        code, yes, no, k = lines[index]
        index += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                index += yes if value == k else no
            case 0x45:
                index += yes if value & k else no
            case 0x54:
                value &= k
            case 0x35:
                index += yes if value >= k else no
            case 0x06:
                return k


@pytest.mark.parametrize(
    ("name", "machine", "socket", "write", "io_uring"),
    [("x86_64", X86, 41, 1, 425), ("aarch64", ARM, 198, 64, 425)],
)
def test_filter_allows_listed_families_only(
    name: str, machine: int, socket: int, write: int, io_uring: int
):
    program = syscall_filter(name, (UNIX, INET), root=False)
    assert program is not None
    assert evaluate(program, machine, write) == ALLOW
    assert evaluate(program, machine, socket, UNIX) == ALLOW
    assert evaluate(program, machine, socket, INET) == ALLOW
    assert evaluate(program, machine, socket, 40) == REFUSE
    assert evaluate(program, machine, io_uring) == REFUSE
    assert evaluate(program, machine ^ 1, write) == REFUSE
    assert evaluate(program, machine, 0x40000000 | write) == REFUSE


def test_no_families_means_no_sockets():
    program = syscall_filter("x86_64", (), root=False)
    assert program is not None
    assert {evaluate(program, X86, 41, family) for family in range(50)} == {REFUSE}


@pytest.mark.parametrize(("name", "machine", "pair"), [("x86_64", X86, 53), ("aarch64", ARM, 199)])
def test_only_connected_socket_pairs_are_allowed(name: str, machine: int, pair: int):
    program = syscall_filter(name, (INET,), root=False)
    assert program is not None
    stream, datagram, raw, packets, not_blocking = 1, 2, 3, 5, 0o4000
    for kind in (stream, packets, stream | not_blocking):
        assert evaluate(program, machine, pair, UNIX, kind) == ALLOW
    for kind in (datagram, raw, datagram | not_blocking):
        assert evaluate(program, machine, pair, UNIX, kind) == REFUSE
    assert evaluate(program, machine, pair, 30, stream) == REFUSE


@pytest.mark.parametrize(
    ("name", "machine", "fchmodat", "openat", "chown"),
    [("x86_64", X86, 268, 257, 260), ("aarch64", ARM, 53, 56, 54)],
)
def test_set_id_modes_and_ownership_changes_are_refused(
    name: str, machine: int, fchmodat: int, openat: int, chown: int
):
    create, temporary = 0o100, 0o20000000
    for root in (False, True):
        program = syscall_filter(name, (), root=root, ownership=False)
        assert program is not None
        for mode, answer in ((0o755, ALLOW), (0o4755, REFUSE), (0o2755, (ALLOW, REFUSE)[root])):
            assert evaluate(program, machine, fchmodat, 0, 0, mode) == answer
            assert evaluate(program, machine, openat, 0, 0, create, mode) == answer
            assert evaluate(program, machine, openat, 0, 0, temporary, mode) == answer
            assert evaluate(program, machine, openat, 0, 0, 0, mode) == ALLOW
        assert evaluate(program, machine, chown) == REFUSE
    program = syscall_filter(name, (), root=True)
    assert program is not None
    assert evaluate(program, machine, chown) == ALLOW


@pytest.mark.parametrize(
    ("name", "machine", "ioctl", "clone", "unshare", "setns"),
    [("x86_64", X86, 16, 56, 272, 308), ("aarch64", ARM, 29, 220, 97, 268)],
)
def test_file_flags_and_namespaces_are_refused(
    name: str, machine: int, ioctl: int, clone: int, unshare: int, setns: int
):
    program = syscall_filter(name, (), root=False, ownership=False, namespaces=False)
    free = syscall_filter(name, (), root=False)
    assert program is not None
    assert free is not None
    set_flags, get_flags, terminal_size = 0x40086602, 0x80086601, 0x5413
    file_setattr, clone3 = 469, 435
    fork, thread, user, time, files = 0x01200011, 0x003D0F00, 0x10000000, 0x80, 0x400
    for number, arguments, answer in (
        (file_setattr, (), REFUSE),
        (ioctl, (0, set_flags), REFUSE),
        (ioctl, (0, get_flags), ALLOW),
        (ioctl, (0, terminal_size), ALLOW),
        (clone, (fork,), ALLOW),
        (clone, (thread,), ALLOW),
        (clone, (fork | user,), REFUSE),
        (clone3, (), UNKNOWN),
        (unshare, (files,), ALLOW),
        (unshare, (user,), REFUSE),
        (unshare, (time,), REFUSE),
        (setns, (), REFUSE),
    ):
        assert evaluate(program, machine, number, *arguments) == answer
        assert evaluate(free, machine, number, *arguments) == ALLOW


def test_unknown_machine_has_no_filter():
    assert syscall_filter("riscv64", (UNIX,), root=False) is None
