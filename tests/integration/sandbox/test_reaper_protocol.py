"""The reaper protocol when the owner dies during a start."""

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hermes.sandbox import reaper

TIMEOUT = 60


@pytest.fixture
def requests() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),), env={}) as process:
            theirs.close()
            yield ours
            ours.close()
            process.wait(TIMEOUT)


def test_owner_gone_before_the_start_report_leaves_no_process(
    requests: socket.socket,
) -> None:
    """The command keeps the pipe open as long as it runs."""
    out, writer = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    socket.send_fds(requests, [b"J"], [theirs.fileno(), nothing, writer, writer])
    for fd in (nothing, writer):
        os.close(fd)
    theirs.close()
    parts = [
        b"/",
        b"0.1",
        b"3 0 0",
        b"/bin/sh",
        b"-c",
        b"echo begun; sleep 1000",
        b"PATH=/usr/bin:/bin",
    ]
    packed = b"\0".join(parts)
    ours.sendall(struct.pack("!I", len(packed)) + packed)
    ours.close()
    output = b""
    while True:
        assert select.select([out], [], [], TIMEOUT)[0], "the command is still running"
        data = os.read(out, 100)
        if not data:
            break
        output += data
    os.close(out)
    assert output in (b"", b"begun\n")
