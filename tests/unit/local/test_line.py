"""The caller's end: an interrupt may come at any moment and never lands inside another frame."""

import socket
import threading
from pathlib import Path

import pytest

from hermes.ipc.client import GatewayGone, UserInput
from hermes.ipc.protocol import MAX_FRAME, FrameBuffer, Interrupt, StartTurn, client_frame_decoder
from hermes.ipc.socket_client import SocketConnection, open_socket
from hermes.schema.messages import Text


def test_an_interrupt_waits_for_the_frame_before_it() -> None:
    ours, theirs = socket.socketpair()
    line = SocketConnection(ours)
    question = StartTurn(UserInput((Text("x" * 3_000_000),)))
    sender = threading.Thread(target=line.send, args=(question,))
    sender.start()
    frames, reader = FrameBuffer(MAX_FRAME), client_frame_decoder()
    frames.feed(theirs.recv(1000))
    for _ in range(5):
        line.interrupt()
    found = []
    while len(found) < 2:
        frames.feed(theirs.recv(100_000))
        while (frame := frames.take()) is not None:
            found.append(reader.read(frame))
    sender.join()
    assert found[:2] == [question, Interrupt()]
    ours.close()
    theirs.close()


def test_a_lost_connection_is_told_of() -> None:
    ours, theirs = socket.socketpair()
    line = SocketConnection(ours)
    theirs.close()
    with pytest.raises(GatewayGone) as caught:
        line.receive()
    assert "hermes gateway status" in caught.value.hint
    with pytest.raises(GatewayGone):
        line.send(Interrupt())
    line.interrupt()
    ours.close()


def test_where_nobody_listens_there_is_no_line(tmp_path: Path) -> None:
    with open_socket(tmp_path) as line:
        assert line is None
    (tmp_path / "gateway.sock").write_text("no socket")
    with open_socket(tmp_path) as line:
        assert line is None
