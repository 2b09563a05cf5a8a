"""Frames: whatever pieces they come in, they go out whole, and what is none is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec import Raw

from hermes.local.partner import Question, Start, State, Trouble
from hermes.local.wire import (
    LIMIT,
    BadFrame,
    Command,
    Ended,
    Failed,
    Frames,
    Happened,
    Hello,
    Interrupt,
    Request,
    Say,
    answer_reader,
    first_reader,
    pack,
    request_reader,
)
from hermes.schema.events import Outcome, ToolStarted
from hermes.schema.messages import Text, ToolCall
from hermes.schema.tools import Effect

REQUESTS: list[Request] = [
    Say(Question((Text("a\nb"),), (b"/p\xff",))),
    Command("/new"),
    Interrupt(),
]


def cut(frames: Frames) -> list[bytes]:
    found: list[bytes] = []
    while (frame := frames.take()) is not None:
        found.append(frame)
    return found


@given(st.lists(st.sampled_from(REQUESTS), max_size=5), st.lists(st.integers(1, 40)))
def test_frames_come_out_as_they_went_in(requests: list[Request], sizes: list[int]) -> None:
    data = b"".join(map(pack, requests))
    frames, found = Frames(LIMIT), list[bytes]()
    while data:
        size = sizes.pop() if sizes else len(data)
        frames.feed(data[:size])
        data = data[size:]
        found += cut(frames)
    reader = request_reader()
    assert [reader.read(one) for one in found] == requests


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_a_frame_or_refused(data: bytes) -> None:
    for reader in (first_reader(), request_reader(), answer_reader()):
        with pytest.raises(BadFrame):
            reader.read(b"\x00" + data)


def test_a_frame_that_is_too_large_is_refused_before_it_has_come() -> None:
    frames = Frames(10)
    frames.feed(b"\0\0\0\x0a" + b"x" * 10)
    assert frames.take() == b"x" * 10
    frames.feed(b"\0\0\0\x0b")
    with pytest.raises(BadFrame, match="11 bytes is too large"):
        frames.take()


def test_the_arguments_of_a_call_keep_their_bytes() -> None:
    event = Happened(ToolStarted(ToolCall("c", "t", Raw(b'{\n "a" : 1}')), Effect.READ))
    frame = pack(event)[4:]
    read = answer_reader().read(frame)
    assert isinstance(read, Happened)
    assert isinstance(read.event, ToolStarted)
    assert bytes(read.event.call.args) == b'{\n "a" : 1}'


def test_what_it_looks_like() -> None:
    hello = Hello(version="1", marks={"PATH": "ab"}, start=Start(cwd="/w"))
    assert msgspec.json.decode(pack(hello)[4:]) == snapshot(
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
                "screen": False,
                "yolo": False,
                "unheard": [],
            },
        }
    )
    assert pack(Ended(Outcome.DONE, State("s", True)))[4:] == snapshot(
        b'{"type":"ended","outcome":"done","state":{"session":"s","started":true}}'
    )
    assert pack(Failed(Trouble("usage", "No.", "Yes.")))[4:] == snapshot(
        b'{"type":"failed","trouble":{"code":"usage","message":"No.","hint":"Yes."},"state":null}'
    )
    assert pack(REQUESTS[0]) == snapshot(
        b'\x00\x00\x00U{"type":"say","question":{"parts":[{"type":"text","text":"a\\nb"}],"images":["L3D/"]}}'
    )
