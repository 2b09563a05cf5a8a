"""Conversion of messages from and to the chat API format."""

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from hermes.schema.chat_api import WireMessage, from_wire, message_of, to_wire
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    Trust,
    Usage,
    User,
)
from hermes.schema.sessions import StoredMessage
from support.cases import cases

DEEP = '{"a": ' + "[" * 100_000

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def read(**fields: object) -> Message:
    message = message_of(msgspec.convert(fields, WireMessage))
    assert message is not None
    return message


def called(arguments: object) -> tuple[bytes, str]:
    function = {"name": "f", "arguments": arguments}
    message = read(role="assistant", tool_calls=[{"id": "c", "function": function}])
    assert isinstance(message, Assistant)
    assert message.stop is Stop.TOOLS
    (call,) = message.calls
    return bytes(call.args), call.broken


@cases(
    ("arguments", "args", "broken"),
    [
        ('{"a" : 1 }', b'{"a" : 1 }', ""),
        ({"a": 1}, b'{"a":1}', ""),
        (None, b"{}", ""),
        ("", b"{}", ""),
        ("[1]", b"{}", "[1]"),
        ([1], b"{}", "[1]"),
        ('{"cut of', b"{}", '{"cut of'),
        (DEEP, b"{}", DEEP),
    ],
)
def test_arguments_are_an_object_or_broken(arguments: object, args: bytes, broken: str):
    assert called(arguments) == (args, broken)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        (None, Stop.END),
        ("stop", Stop.END),
        ("length", Stop.LENGTH),
        ("content_filter", Stop.REFUSED),
    ],
)
def test_stop_reason_is_kept(reason: str | None, stop: Stop):
    message = read(role="assistant", content="x", finish_reason=reason)
    assert isinstance(message, Assistant)
    assert message.stop is stop


def test_text_parts_of_any_type_are_text():
    parts = [{"type": "input_text", "text": "a"}, {"text": "b"}, {"type": "image_url"}]
    assert read(role="user", content=parts).parts == (
        Text("a"),
        Text("b"),
        Text("[a part of the kind 'image_url' that was not imported]"),
    )


def test_system_prompt_is_not_a_message():
    assert from_wire(WireMessage(role="system", content="be kind"), NOON) is None


@cases(
    "message",
    [
        User("m", (Text("hi"),), Trust.GUEST),
        User("m", (Text("look"), Media("d", "image/png", "a.png"))),
        Result("m", "c", (Text("a"), Text("b")), failed=True, shown="diff"),
        Result("m", "c", (Text("a"),), foreign=True),
        Assistant(
            "m",
            (
                Text("first"),
                ToolCall("c1", "f", Raw(b"[1]")),
                Reasoning("then", "seal"),
                ToolCall("c2", "g", Raw(b"{}"), '{"cut of'),
            ),
            Stop.CANCELLED,
            Usage(1, 2),
            "m",
            "p",
        ),
    ],
)
def test_messages_round_trip(message: Message):
    stored = StoredMessage(0, NOON, "r", message)
    line = msgspec.json.encode(to_wire(stored))
    assert from_wire(msgspec.json.decode(line, type=WireMessage), NOON) == stored
