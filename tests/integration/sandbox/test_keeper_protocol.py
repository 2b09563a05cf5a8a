"""The keeper, spoken to directly: what it does when the owner is gone at an odd moment."""

import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hermes.sandbox import reaper

PATIENCE = 60


@pytest.fixture
def requests() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-I", "-S", reaper.__file__, str(theirs.fileno())]
        with subprocess.Popen(command, pass_fds=(theirs.fileno(),), env={}) as process:
            theirs.close()
            yield ours
            ours.close()
            process.wait(PATIENCE)


def test_an_owner_that_is_gone_before_the_command_is_reported_leaves_nothing(
    requests: socket.socket,
) -> None:
    """Nobody hears that it began; the command holds the pipe open for as long as it lives."""
    out, writer = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    socket.send_fds(requests, [b"J"], [theirs.fileno(), nothing, writer, writer])
    for fd in (nothing, writer):
        os.close(fd)
    theirs.close()
    words = [
        b"/",
        b"0.1",
        b"3 0 0",
        b"/bin/sh",
        b"-c",
        b"echo begun; sleep 1000",
        b"PATH=/usr/bin:/bin",
    ]
    packed = b"\0".join(words)
    ours.sendall(struct.pack("!I", len(packed)) + packed)
    ours.close()
    heard = b""
    while True:
        assert select.select([out], [], [], PATIENCE)[0], "the command lives on"
        data = os.read(out, 100)
        if not data:
            break
        heard += data
    os.close(out)
    assert heard in (b"", b"begun\n")
