"""Convert messages to the OpenAI chat format, with an extension for missing fields."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias, assert_never

import msgspec
from msgspec import Raw, Struct

from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
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

WireTime: TypeAlias = datetime | float
"""ISO 8601, or seconds since 1970."""
WireContent: TypeAlias = str | list[dict[str, object]] | None


class WireCallPart(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call"):
    """A tool call with its arguments as text."""

    id: str
    name: str
    args: str
    broken: str = ""


class ExtraFields(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields missing in the chat API; `parts` only if their order matters."""

    id: str = ""
    at: WireTime | None = None
    run: str = ""
    trust: Trust = Trust.OWNER
    stop: Stop | None = None
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""
    failed: bool = False
    shown: str = ""
    foreign: bool = False
    unverified: bool = False
    parts: tuple[Text | Reasoning | Media | WireCallPart, ...] = ()


_EXTRA_FIELDS = frozenset(ExtraFields.__struct_fields__) - {"at", "run", "parts"}


class WireFunction(Struct, frozen=True):
    """The arguments are JSON inside a string; some programs write them as plain JSON."""

    name: str = ""
    arguments: object = "{}"


class WireCall(Struct, frozen=True):
    id: str = ""
    function: WireFunction = WireFunction()
    type: str = "function"


class WireMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: str
    content: WireContent = None
    reasoning_content: str | None = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str | None = None
    hermes: ExtraFields = ExtraFields()
    timestamp: WireTime | None = None
    finish_reason: str | None = None


def to_wire(stored: StoredMessage) -> WireMessage:
    wire = _wire_message(stored)
    if from_wire(wire, stored.at) == msgspec.structs.replace(stored, seq=0):
        return wire
    parts = tuple(_to_wire_part(part) for part in stored.message.parts)
    return msgspec.structs.replace(wire, hermes=msgspec.structs.replace(wire.hermes, parts=parts))


def from_wire(wire: WireMessage, fallback: datetime) -> StoredMessage | None:
    """The original message; None for kinds outside a conversation (a system prompt)."""
    message = message_of(wire)
    if message is None:
        return None
    at = wire.hermes.at if wire.hermes.at is not None else wire.timestamp
    return StoredMessage(0, fallback if at is None else to_utc(at), wire.hermes.run, message)


def message_of(wire: WireMessage) -> Message | None:
    """None for kinds that are not part of a conversation."""
    beside = wire.hermes
    identity = beside.id or new_id("msg")
    match wire.role:
        case "user":
            return as_user_message(wire)
        case "assistant":
            return _assistant(wire, identity)
        case "tool":
            call, parts = wire.tool_call_id or "", _user_parts(wire)
            flags = (beside.failed, beside.shown, beside.foreign, beside.unverified)
            return Result(identity, call, parts, *flags)
        case _:
            return None


def as_user_message(wire: WireMessage) -> User:
    """The message as a user message, whatever its role."""
    return User(wire.hermes.id or new_id("msg"), _user_parts(wire), wire.hermes.trust)


def to_utc(time: WireTime) -> datetime:
    """The time in UTC, which is also the default zone. Raises `ValueError`."""
    if isinstance(time, datetime):
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    try:
        return datetime.fromtimestamp(time, UTC)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{time} is not a time") from error


def content_text(content: WireContent) -> str:
    """The text of a message's content."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in map(_from_content, content) if isinstance(part, Text))


def _wire_message(stored: StoredMessage) -> WireMessage:
    message = stored.message
    same = {name: getattr(message, name) for name in _EXTRA_FIELDS if hasattr(message, name)}
    beside = ExtraFields(at=stored.at, run=stored.run, **same)
    match message:
        case User(parts=parts):
            return WireMessage(role="user", content=_content(parts), hermes=beside)
        case Assistant():
            thought = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
            calls = [
                WireCall(call.id, WireFunction(call.name, bytes(call.args).decode()))
                for call in message.calls
            ]
            return WireMessage(
                role="assistant",
                content=message.text or None,
                reasoning_content=thought or None,
                tool_calls=calls or None,
                hermes=beside,
            )
        case Result(parts=parts, call=call):
            content = _content(parts)
            return WireMessage(role="tool", content=content, tool_call_id=call, hermes=beside)
        case _:
            assert_never(message)


def _content(parts: Sequence[Text | Media]) -> str | list[dict[str, object]]:
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_content_part(part) for part in parts]


def _content_part(part: Text | Media) -> dict[str, object]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    named = {"file_id": part.digest, "filename": part.name, "media_type": part.media_type}
    return {"type": "file", "file": named}


def _to_wire_part(
    part: Text | Reasoning | Media | ToolCall,
) -> Text | Reasoning | Media | WireCallPart:
    if isinstance(part, ToolCall):
        args = bytes(part.args).decode()
        return WireCallPart(id=part.id, name=part.name, args=args, broken=part.broken)
    return part


def _user_parts(wire: WireMessage) -> tuple[Text | Media, ...]:
    if wire.hermes.parts:
        return tuple(part for part in wire.hermes.parts if isinstance(part, Text | Media))
    if wire.content is None or isinstance(wire.content, str):
        return (Text(wire.content),) if wire.content else ()
    return tuple(_from_content(part) for part in wire.content)


def _from_content(part: dict[str, object]) -> Text | Media:
    match part:
        case {"text": str(text)}:
            return Text(text)
        case {"file": {"file_id": str(digest), "media_type": str(kind), "filename": str(name)}}:
            return Media(digest, kind, name)
        case _:
            return Text(f"[a part of the kind {part.get('type')!r} that was not imported]")


def _assistant(wire: WireMessage, identity: str) -> Assistant:
    beside = wire.hermes
    parts = tuple(map(_from_wire_part, beside.parts)) if beside.parts else _assistant_parts(wire)
    known = tuple(part for part in parts if not isinstance(part, Media))
    calls = any(isinstance(part, ToolCall) for part in known)
    stop = beside.stop or _stop(wire.finish_reason, calls=calls)
    return Assistant(identity, known, stop, beside.usage, beside.model, beside.provider)


def _assistant_parts(wire: WireMessage) -> tuple[Text | Reasoning | ToolCall, ...]:
    parts: list[Text | Reasoning | ToolCall] = []
    if wire.reasoning_content:
        parts.append(Reasoning(wire.reasoning_content))
    if text := content_text(wire.content):
        parts.append(Text(text))
    parts += [_call(call) for call in wire.tool_calls or ()]
    return tuple(parts)


def _call(call: WireCall) -> ToolCall:
    """Arguments as an object; invalid ones are kept as text next to an empty object."""
    arguments = "{}" if call.function.arguments is None else call.function.arguments
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    try:
        msgspec.json.decode(text, type=dict[str, Raw])
    except JSON_ERRORS:
        return ToolCall(call.id, call.function.name, Raw(b"{}"), text)
    return ToolCall(call.id, call.function.name, Raw(text.encode()))


def _from_wire_part(
    part: Text | Reasoning | Media | WireCallPart,
) -> Text | Reasoning | Media | ToolCall:
    if isinstance(part, WireCallPart):
        return ToolCall(part.id, part.name, Raw(part.args.encode()), part.broken)
    return part


def _stop(finish_reason: str | None, *, calls: bool) -> Stop:
    match finish_reason:
        case "length":
            return Stop.LENGTH
        case "content_filter":
            return Stop.REFUSED
        case _:
            return Stop.TOOLS if calls else Stop.END
