"""Thoughts that go back to whoever thought them, and what to do when they are not taken."""

import re

from msgspec import structs

from hermes.ports.model import Request
from hermes.schema.messages import Assistant, Message, Reasoning

_ABOUT_THOUGHTS = re.compile(
    r"signature|encrypted[ _]content|thinking. block|thinking blocks?|required following item"
    r"|item with id '?rs_",
    re.IGNORECASE,
)


def is_about_thoughts(refusal: str) -> bool:
    """Whether a provider complains of a seal: it may be too old, or another account's."""
    return _ABOUT_THOUGHTS.search(refusal) is not None


def has_thoughts(request: Request) -> bool:
    return any(
        isinstance(part, Reasoning)
        for message in request.messages
        if isinstance(message, Assistant)
        for part in message.parts
    )


def without_thoughts(request: Request) -> Request:
    return structs.replace(request, messages=[_spoken(message) for message in request.messages])


def _spoken(message: Message) -> Message:
    if not isinstance(message, Assistant):
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Reasoning))
    return structs.replace(message, parts=parts)
