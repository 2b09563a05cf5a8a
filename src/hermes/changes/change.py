"""A change to what the agent knows: who made it, from whose words, why, and every byte of it."""

from datetime import datetime
from enum import StrEnum

from msgspec import Raw, Struct


class Author(StrEnum):
    """Whose decision it was. A review is the agent looking back after a turn."""

    PERSON = "person"
    AGENT = "agent"
    REVIEW = "review"
    CURATOR = "curator"


class State(StrEnum):
    """`APPLYING` is on its way to the disk: a crash there is made good at the next look."""

    APPLYING = "applying"
    APPLIED = "applied"
    UNDONE = "undone"
    FAILED = "failed"


class Edit(Struct, frozen=True):
    """One file under the home, before and after; None where there is no file."""

    path: str
    before: bytes | None
    after: bytes | None


class Origin(Struct, frozen=True, kw_only=True):
    """Where it came from. `words` names strangers whose words were in the turn: a page, a file."""

    session: str = ""
    run: str = ""
    principal: str = ""
    words: tuple[str, ...] = ()


class Change(Struct, frozen=True, kw_only=True):
    """`kind` is `memory` or `skill`, `name` which one; `summary` is one line for people.

    `undoes` is the id of the change that it takes back, if it does.
    """

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    edits: tuple[Edit, ...]
    origin: Origin = Origin()
    why: str = ""
    undoes: str = ""


class Entry(Struct, frozen=True):
    change: Change
    state: State


class Proposal(Struct, frozen=True, kw_only=True):
    """A change that waits for a person. `request` is for whoever makes changes of this kind."""

    id: str
    kind: str
    name: str
    summary: str
    by: Author
    at: datetime
    request: Raw
    origin: Origin = Origin()
    why: str = ""
