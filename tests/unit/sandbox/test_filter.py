"""The filter of calls, executed here as the kernel would."""

import struct

import pytest

from hermes.sandbox.filter import INET, UNIX, syscall_filter

ALLOW, REFUSE = 0x7FFF0000, 0x00050001
X86, ARM = 0xC000003E, 0xC00000B7


def verdict(program: bytes, machine: int, number: int, first: int = 0) -> int:
    data = struct.pack("<IIQQ", number, machine, 0, first)
    lines = [*struct.iter_unpack("<HBBI", program)]
    at = value = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                at += yes if value == k else no
            case 0x35:
                at += yes if value >= k else no
            case 0x06:
                return k


@pytest.mark.parametrize(
    ("name", "machine", "socket", "write", "io_uring"),
    [("x86_64", X86, 41, 1, 425), ("aarch64", ARM, 198, 64, 425)],
)
def test_families_and_calls(name: str, machine: int, socket: int, write: int, io_uring: int):
    program = syscall_filter(name, (UNIX, INET), root=False)
    assert program is not None
    assert verdict(program, machine, write) == ALLOW
    assert verdict(program, machine, socket, UNIX) == ALLOW
    assert verdict(program, machine, socket, INET) == ALLOW
    assert verdict(program, machine, socket, 40) == REFUSE
    assert verdict(program, machine, io_uring) == REFUSE
    assert verdict(program, machine ^ 1, write) == REFUSE
    assert verdict(program, machine, 0x40000000 | write) == REFUSE


def test_without_families_there_are_no_sockets():
    program = syscall_filter("x86_64", (), root=False)
    assert program is not None
    assert {verdict(program, X86, 41, family) for family in range(50)} == {REFUSE}


def test_machines_we_do_not_know():
    assert syscall_filter("riscv64", (UNIX,), root=False) is None
