"""What systemd and `gateway start` hear, and that nothing is said where nobody listens."""

import os
import socket
from collections.abc import Iterator

import anyio
import pytest

from hermes.app.service.notifier import Notifier
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def manager() -> Iterator[tuple[socket.socket, str]]:
    """A socket without a place in the file system, as containers have it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(b"")
        listening.setblocking(False)
        yield listening, "@" + listening.getsockname()[1:].decode()


def test_outside_systemd_nothing_happens() -> None:
    for env in ({}, {"NOTIFY_SOCKET": "odd"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}):
        notifier = Notifier(env)
        notifier.ready("fine")
        notifier.stopping()
        notifier.close()
    assert not Notifier({}).heard


def test_every_word_is_a_datagram(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert notifier.heard
    notifier.status("two\nlines")
    notifier.waiting(20, "a storm")
    notifier.ready()
    notifier.stopping("draining", 60)
    assert [listening.recv(1000) for _ in range(4)] == [
        b"STATUS=two lines",
        b"EXTEND_TIMEOUT_USEC=50000000\nSTATUS=a storm",
        b"READY=1",
        b"STOPPING=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=draining",
    ]


def test_a_pipe_is_closed_when_all_is_said() -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    notifier = Notifier({}, theirs)
    assert not os.get_inheritable(theirs)
    notifier.status("connecting")
    notifier.ready("2 platforms")
    notifier.close()
    assert os.read(ours, 1000) == b"STATUS=connecting\nSTATUS=2 platforms\nREADY=1\n"
    assert os.read(ours, 1000) == b""
    os.close(ours)


def test_a_reader_who_left_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    Notifier({}, theirs).ready()


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_who_wants_signs_of_life(env: dict[str, str], seconds: float) -> None:
    assert Notifier(env).watchdog == seconds


async def test_signs_of_life_come_at_half_the_interval(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    clock, well = FakeClock(), True
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "10000000"})
    async with anyio.create_task_group() as group:
        group.start_soon(notifier.keep_alive, clock, lambda: well)
        await clock.advance(10)
        assert [listening.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        well = False
        await clock.advance(60)
        with pytest.raises(BlockingIOError):
            listening.recv(100)
        group.cancel_scope.cancel()
    await Notifier({}).keep_alive(clock)
