"""Maintain the search indexes in short batches; they lag behind writes."""

import hashlib
import logging
from functools import cache, lru_cache

from msgspec import Struct

from hermes.ports.maintenance import IndexState
from hermes.schema.errors import StoreError
from hermes.schema.messages import Assistant, Message, Result, Trust, User, text_of
from hermes.schema.scope import OWNER
from hermes.store.connection import (
    BUSY_TRIES,
    Connection,
    Row,
    load_statements,
    write_transaction,
)
from hermes.store.rows import decode_message, fetch_number, row_as
from hermes.store.search_text import fold_text, space_signs

_SQL = load_statements("search_index")
log = logging.getLogger(__name__)

MAX_INDEXED_TEXT = 262_144
"""Searchable characters of a message of a person or the model."""
MAX_INDEXED_OUTPUT = 8_192
"""Searchable characters of a tool's arguments or output."""
INDEX_ROWS = 1_000
"""Messages indexed in one transaction at most."""
_BATCH_CHARACTERS = 150_000
"""Characters indexed in one transaction: about 50 ms."""
_END = 2**63 - 1
"""After every message."""


class _Row(Struct, array_like=True, frozen=True):
    id: int
    role: str
    state: int
    body: bytes
    principal: str
    session: str
    seq: int


def indexed_text(message: Message) -> str:
    """The searchable text of a message: said, called and returned, but not reasoning."""
    match message:
        case Result():
            return text_of(message)[:MAX_INDEXED_OUTPUT]
        case Assistant():
            calls = (
                f"\n{call.name} {bytes(call.args)[:MAX_INDEXED_OUTPUT].decode('utf-8', 'replace')}"
                for call in message.calls
            )
            return text_of(message)[:MAX_INDEXED_TEXT] + "".join(calls)
        case User():
            return shown_text(message)[:MAX_INDEXED_TEXT]


def shown_text(message: Message) -> str:
    """The text, without the note to the model around what was posted from elsewhere."""
    text = text_of(message)
    if isinstance(message, User) and message.trust is Trust.DATA:
        from hermes.kit.report_text import posted_text  # noqa: PLC0415 - rarely needed

        return posted_text(text)
    return text


@cache
def role_tag(role: str) -> str:
    """A word that no text contains."""
    return "r" + role.encode().hex()


@lru_cache(maxsize=1000)
def owner_tag(principal: str) -> str:
    """A word that no text contains."""
    return "p" + hashlib.sha256(principal.encode()).hexdigest()[:16]


def newest_message(connection: Connection) -> int:
    return fetch_number(connection.execute(_SQL["newest"]))


def read_index_state(connection: Connection) -> IndexState:
    return IndexState(newest_message(connection), fetch_number(connection.execute(_SQL["upto"])))


def is_index_behind(connection: Connection, goal: int) -> bool:
    """Whether a message up to `goal` is missing from the indexes."""
    return fetch_number(connection.execute(_SQL["behind"], {"goal": goal})) > 0


def index_batch(connection: Connection, goal: int = _END, tries: int = BUSY_TRIES) -> bool:
    """Index one batch in a short transaction. Return whether a message up to `goal` is missing."""
    if not is_index_behind(connection, goal):
        return False
    size, last = 0, None
    words: list[tuple[int, str, str]] = []
    grams: list[tuple[int, str]] = []
    with write_transaction(connection, tries):
        for fields in connection.execute(_SQL["next"], {"limit": INDEX_ROWS}).fetchall():
            last = fields[0]
            found = _decode_row(fields)
            if found is None:
                continue
            row, text = found
            tags = role_tag(row.role)
            if row.principal != OWNER:
                tags += f" {owner_tag(row.principal)}"
            words.append((row.id, space_signs(text), tags))
            grams.append((row.id, text))
            size += len(text)
            if size > _BATCH_CHARACTERS:
                break
        connection.executemany(_SQL["add words"], words)
        connection.executemany(_SQL["add grams"], grams)
        if last is not None:
            connection.execute(_SQL["mark"], (last,))
    return is_index_behind(connection, goal)


def merge_indexes(connection: Connection) -> None:
    """Compact both indexes."""
    connection.execute(_SQL["merge words"])
    connection.execute(_SQL["merge grams"])


def _decode_row(fields: Row) -> tuple[_Row, str] | None:
    """None for messages that were taken back or cannot be read."""
    try:
        row = row_as(fields, _Row)
        if row.state == 2:
            return None
        return row, fold_text(
            indexed_text(decode_message(row.body, f"Message {row.seq} of session {row.session}"))
        )
    except StoreError as error:
        log.warning("skipped a message in the search index: %s", error)
        return None
