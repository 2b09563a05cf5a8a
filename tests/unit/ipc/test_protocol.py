"""Frames: reassembled from any pieces, and rejected if invalid."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.ipc.client import ConversationOptions, UserInput
from hermes.ipc.protocol import (
    MAX_FRAME,
    BadFrame,
    ClientFrame,
    EventFrame,
    FirstFrame,
    FrameBuffer,
    FrameDecoder,
    Hello,
    Interrupt,
    RequestFailed,
    RunCommand,
    ServerFrame,
    StartTurn,
    TurnEnded,
    encode_frame,
)
from hermes.schema.events import Outcome, ToolStarted
from hermes.schema.messages import Text, ToolCall
from hermes.schema.terminal import ConversationState, ErrorInfo
from hermes.schema.tools import Effect

REQUESTS: list[ClientFrame] = [
    StartTurn(UserInput((Text("a\nb"),), (b"/p\xff",))),
    RunCommand("/new"),
    Interrupt(),
]


def take_all(frames: FrameBuffer) -> list[bytes]:
    found: list[bytes] = []
    while (frame := frames.take()) is not None:
        found.append(frame)
    return found


@given(st.lists(st.sampled_from(REQUESTS), max_size=5), st.lists(st.integers(1, 40)))
def test_frames_survive_any_fragmentation(requests: list[ClientFrame], sizes: list[int]) -> None:
    data = b"".join(map(encode_frame, requests))
    frames, found = FrameBuffer(MAX_FRAME), list[bytes]()
    while data:
        size = sizes.pop() if sizes else len(data)
        frames.feed(data[:size])
        data = data[size:]
        found += take_all(frames)
    reader = FrameDecoder[ClientFrame](ClientFrame)
    assert [reader.decode(one) for one in found] == requests


@given(st.binary(max_size=200))
def test_invalid_bytes_are_rejected(data: bytes) -> None:
    for reader in (
        FrameDecoder[FirstFrame](FirstFrame),
        FrameDecoder[ClientFrame](ClientFrame),
        FrameDecoder[ServerFrame](ServerFrame),
    ):
        with pytest.raises(BadFrame):
            reader.decode(b"\x00" + data)


def test_too_large_frame_is_rejected_by_its_length() -> None:
    frames = FrameBuffer(10)
    frames.feed(b"\0\0\0\x0a" + b"x" * 10)
    assert frames.take() == b"x" * 10
    frames.feed(b"\0\0\0\x0b")
    with pytest.raises(BadFrame, match="11 bytes is too large"):
        frames.take()


def test_call_arguments_keep_their_bytes() -> None:
    event = EventFrame(ToolStarted(ToolCall("c", "t", Raw(b'{\n "a" : 1}')), Effect.READ))
    frame = encode_frame(event)[4:]
    read = FrameDecoder[ServerFrame](ServerFrame).decode(frame)
    assert isinstance(read, EventFrame)
    assert isinstance(read.event, ToolStarted)
    assert bytes(read.event.call.args) == b'{\n "a" : 1}'


def test_wire_format() -> None:
    hello = Hello(version="1", marks={"PATH": "ab"}, start=ConversationOptions(cwd="/w"))
    assert msgspec.json.decode(encode_frame(hello)[4:]) == snapshot(
        {
            "type": "hello",
            "protocol": 4,
            "version": "1",
            "marks": {"PATH": "ab"},
            "start": {
                "cwd": "/w",
                "moved": False,
                "resume": "",
                "latest": False,
                "model": "",
                "provider": "",
                "source": "cli",
                "toolsets": None,
                "max_steps": None,
                "person": False,
                "attended": False,
                "screen": False,
                "yolo": False,
                "unheard": [],
                "refresh": True,
            },
        }
    )
    assert encode_frame(TurnEnded(Outcome.DONE, ConversationState("s", True)))[4:] == snapshot(
        b'{"type":"ended","outcome":"done","state":{"session":"s","started":true}}'
    )
    assert encode_frame(RequestFailed(ErrorInfo("usage", "No.", "Yes.")))[4:] == snapshot(
        b'{"type":"failed","trouble":{"code":"usage","message":"No.","hint":"Yes."},"state":null}'
    )
    assert encode_frame(REQUESTS[0]) == snapshot(
        b'\x00\x00\x00U{"type":"say","question":{"parts":[{"type":"text","text":"a\\nb"}],"images":["L3D/"]}}'
    )
