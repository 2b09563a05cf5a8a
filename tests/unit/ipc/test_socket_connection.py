"""The client's connection: an interrupt may come at any moment and never splits a frame."""

import socket
import threading
from pathlib import Path

import pytest

from hermes.ipc.client import GatewayGone, UserInput
from hermes.ipc.protocol import (
    MAX_FRAME,
    ClientFrame,
    FrameBuffer,
    FrameDecoder,
    Interrupt,
    StartTurn,
)
from hermes.ipc.socket_client import SocketConnection, open_socket
from hermes.schema.messages import Text


def test_interrupt_waits_for_the_frame_being_sent() -> None:
    ours, theirs = socket.socketpair()
    connection = SocketConnection(ours)
    question = StartTurn(UserInput((Text("x" * 3_000_000),)))
    sender = threading.Thread(target=connection.send, args=(question,))
    sender.start()
    frames, reader = FrameBuffer(MAX_FRAME), FrameDecoder[ClientFrame](ClientFrame)
    frames.feed(theirs.recv(1000))
    for _ in range(5):
        connection.interrupt()
    found = []
    while len(found) < 2:
        frames.feed(theirs.recv(100_000))
        while (frame := frames.take()) is not None:
            found.append(reader.decode(frame))
    sender.join()
    assert found[:2] == [question, Interrupt()]
    ours.close()
    theirs.close()


def test_lost_connection_is_reported() -> None:
    ours, theirs = socket.socketpair()
    connection = SocketConnection(ours)
    theirs.close()
    with pytest.raises(GatewayGone) as caught:
        connection.receive()
    assert "hermes gateway status" in caught.value.hint
    with pytest.raises(GatewayGone):
        connection.send(Interrupt())
    connection.interrupt()
    ours.close()


def test_no_connection_without_a_listener(tmp_path: Path) -> None:
    with open_socket(tmp_path) as connection:
        assert connection is None
    (tmp_path / "gateway.sock").write_text("not a socket")
    with open_socket(tmp_path) as connection:
        assert connection is None
