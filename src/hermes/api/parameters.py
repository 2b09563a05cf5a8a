"""What a request may carry besides its path and its body, as the OpenAPI document tells it.

A route names its own as `takes`; whoever reads another query field or header must declare it.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

LONGEST = 256
"""Characters of a name in a header."""
MOST_DIGITS = 15


class Parameter(Struct, frozen=True):
    name: str
    place: Literal["query", "header"]
    schema: Mapping[str, object]
    words: str


def query(name: str, schema: Mapping[str, object], words: str) -> Parameter:
    return Parameter(name, "query", schema, words)


def header(name: str, schema: Mapping[str, object], words: str) -> Parameter:
    return Parameter(name, "header", schema, words)


def whole_number(least: int = 0, most: int = 10**MOST_DIGITS - 1) -> Mapping[str, object]:
    return {"type": "integer", "minimum": least, "maximum": most}


_NAME: Mapping[str, object] = {"type": "string", "minLength": 1, "maxLength": LONGEST}

IDEMPOTENCY_KEY = header(
    "Idempotency-Key", _NAME, "Asked again with the same key, it is answered again, not done again."
)
SESSION_ID = header("X-Hermes-Session-Id", _NAME, "The session to go on in; a new name makes one.")
SESSION_KEY = header("X-Hermes-Session-Key", _NAME, "Written down with a session that is made.")
TASK = header(
    "X-Hermes-Task", {"enum": ["1", "0"]}, "1: a side call, without a session, tools and prompt."
)
LAST_EVENT_ID = header(
    "Last-Event-ID",
    whole_number(),
    "The number of the last event that was seen; goes before `after`.",
)
AFTER = query("after", whole_number(), "What follows this number.")

TURN = (IDEMPOTENCY_KEY,)
NEW_TURN = (IDEMPOTENCY_KEY, SESSION_ID, SESSION_KEY)
FOLLOWED = (LAST_EVENT_ID, AFTER)
