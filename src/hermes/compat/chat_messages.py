"""Convert messages from and to the format of the chat API."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hermes.schema.chat_api import WireMessage, from_wire, to_wire
from hermes.schema.errors import UsageError
from hermes.schema.messages import Message
from hermes.schema.sessions import StoredMessage

Json = dict[str, Any]


def parse_history(history: Sequence[Mapping[str, Any]], now: datetime) -> list[Message]:
    """Convert chat API messages to ours; system messages are left out."""
    try:
        wire_messages = msgspec.convert(list(history), list[WireMessage])
    except msgspec.ValidationError as error:
        raise UsageError(f"conversation_history is not in the chat API format: {error}") from error
    stored = [from_wire(wire, now) for wire in wire_messages]
    return [row.message for row in stored if row is not None]


def to_chat_message(row: StoredMessage) -> Json:
    """Convert to the chat API format, without our own additions."""
    fields = msgspec.to_builtins(to_wire(row))
    fields.pop("hermes", None)
    fields.setdefault("content", None)
    return fields
