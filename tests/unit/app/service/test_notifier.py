"""Notifications to systemd and `gateway start`, and silence without a receiver."""

import os
import socket
from collections.abc import Iterator

import anyio
import pytest

from hermes.app.service.notifier import Notifier
from hermes.testing.clock import FakeClock


@pytest.fixture
def manager() -> Iterator[tuple[socket.socket, str]]:
    """An abstract socket, as containers use it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(b"")
        listening.setblocking(False)
        yield listening, "@" + listening.getsockname()[1:].decode()


def test_without_receiver_nothing_is_sent() -> None:
    for env in ({}, {"NOTIFY_SOCKET": "odd"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}):
        notifier = Notifier(env)
        notifier.ready("fine")
        notifier.stopping()
        notifier.close()
    assert not Notifier({}).has_receiver


def test_each_notification_is_a_datagram(manager: tuple[socket.socket, str]) -> None:
    listening, address = manager
    notifier = Notifier({"NOTIFY_SOCKET": address})
    assert notifier.has_receiver
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


def test_pipe_is_closed_after_ready() -> None:
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


def test_closed_reader_is_not_an_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    Notifier({}, theirs).ready()


@pytest.mark.parametrize(
    ("env", "seconds"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 30),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
        ({"WATCHDOG_USEC": "soon"}, 0),
    ],
)
def test_watchdog_interval(env: dict[str, str], seconds: float) -> None:
    assert Notifier(env).watchdog == seconds


def test_watchdog_of_this_process_applies() -> None:
    env = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier(env).watchdog == 30


async def test_watchdog_signals_come_at_half_the_interval(
    manager: tuple[socket.socket, str],
) -> None:
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
