"""Feeding the search indexes, a little behind the writes and never behind a search."""

import hashlib
import logging

from msgspec import Struct

from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant, Message, Result, ToolCall, text_of
from hermes.schema.scope import OWNER
from hermes.store.connection import BUSY_TRIES, Connection, Row, Value, begin
from hermes.store.folding import fold, spaced
from hermes.store.rows import decode, number_of, row_as
from hermes.store.statements import load

_SQL = load("index")
log = logging.getLogger(__name__)

SPOKEN = 262_144
"""Characters of what a person or the model said that can be found again."""
PRODUCED = 8_192
"""Characters of a tool's arguments or output that can be found again."""
_STEP = 150_000
"""Characters indexed in one transaction: about 50 ms."""


class _Row(Struct, array_like=True, frozen=True):
    id: int
    role: str
    state: int
    body: bytes
    principal: str
    session: str
    seq: int


def findable(message: Message) -> str:
    """The text by which a message is found: what was said, called and returned, not thought."""
    match message:
        case Result():
            return text_of(message)[:PRODUCED]
        case Assistant():
            calls = "".join(
                f"\n{part.name} {_args(part)}"
                for part in message.parts
                if isinstance(part, ToolCall)
            )
            return text_of(message)[:SPOKEN] + calls
        case _:
            return text_of(message)[:SPOKEN]


def tags(role: str, principal: str) -> str:
    """Words that no text contains: the role, and whose it is when not the owner's."""
    return role_tag(role) if principal == OWNER else f"{role_tag(role)} {owner_tag(principal)}"


def role_tag(role: str) -> str:
    return "r" + role.encode().hex()


def owner_tag(principal: str) -> str:
    return "p" + hashlib.sha256(principal.encode()).hexdigest()[:16]


def newest(connection: Connection) -> int:
    return number_of(connection.execute(_SQL["newest"]))


def is_behind(connection: Connection, goal: int) -> bool:
    """Whether a message is missing from the indexes that is not newer than `goal`."""
    return number_of(connection.execute(_SQL["behind"], {"goal": goal})) > 0


def index_some(connection: Connection, goal: int | None = None, tries: int = BUSY_TRIES) -> bool:
    """One short transaction's worth. Returns whether `goal`, or the end, is still ahead."""
    wanted = newest(connection) if goal is None else goal
    if not is_behind(connection, wanted):
        return False
    begin(connection, tries)
    try:
        _index(connection)
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return is_behind(connection, wanted)


def merge(connection: Connection) -> None:
    """Make both indexes as small and as quick as they can be."""
    connection.execute(_SQL["merge words"])
    connection.execute(_SQL["merge grams"])


def _index(connection: Connection) -> None:
    size = 0
    last: Value = 0
    words: list[tuple[int, str, str]] = []
    grams: list[tuple[int, str]] = []
    rows = connection.execute(_SQL["next"]).fetchall()
    for fields in rows:
        last = fields[0]
        found = _readable(fields)
        if found is None:
            continue
        row, text = found
        words.append((row.id, spaced(text), tags(row.role, row.principal)))
        grams.append((row.id, text))
        size += len(text)
        if size > _STEP:
            break
    if not rows:
        return
    connection.executemany(_SQL["add words"], words)
    connection.executemany(_SQL["add grams"], grams)
    connection.execute(_SQL["mark"], (last,))


def _readable(fields: Row) -> tuple[_Row, str] | None:
    """None for what was taken back; one row nobody can read must not stop all the others."""
    try:
        row = row_as(fields, _Row)
        if row.state == 2:
            return None
        return row, fold(findable(decode(row.body, f"Message {row.seq} of session {row.session}")))
    except StoreError as error:
        log.warning("a message is left out of the search: %s", error)
        return None


def _args(call: ToolCall) -> str:
    return bytes(call.args)[:PRODUCED].decode("utf-8", "replace")
