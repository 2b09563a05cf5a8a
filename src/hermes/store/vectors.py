"""All vectors of a database: their signs in memory, their numbers on disk.

The signs alone find what may be near: 32 bytes of each vector, compared eight at a time. Only
the nearest few hundred are then read and compared exactly.
"""

import logging
from collections.abc import Sequence
from hashlib import sha256
from itertools import islice
from threading import Lock

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hermes.schema.errors import StoreError
from hermes.schema.messages import text_of
from hermes.schema.scope import OWNER
from hermes.store.connection import Connection, begin_write
from hermes.store.embedding import (
    Embedder,
    Floats,
    is_valid_vector,
    pack_vectors,
    passages,
    unpack_vectors,
)
from hermes.store.rows import decode_message, fetch_all, fetch_one, row_as
from hermes.store.statements import load_statements

_SQL = load_statements("vectors")
log = logging.getLogger(__name__)

MIN_SIMILARITY = 0.22
"""How alike, as a cosine, something must be to count as found."""
CANDIDATES = 256
MAX_MESSAGES = 2_000_000
"""Messages back from the newest that are looked at: 50 bytes of memory each, and more."""
_LOAD_BATCH = 20_000
_EXCLUDED_DISTANCE = 1_000
_ROLES = {"user": 1, "assistant": 2}


class VectorState(Struct, array_like=True, frozen=True):
    upto: int
    epoch: int
    made_by: str


class VectorHit(Struct, frozen=True):
    """A message and which of its passages is alike."""

    message: int
    part: int


class _NextRow(Struct, array_like=True, frozen=True):
    id: int
    session: int
    role: str
    body: bytes


class _BodyRow(Struct, array_like=True, frozen=True):
    body: bytes


class _VectorRow(Struct, array_like=True, frozen=True):
    message: int
    part: int
    role: str
    principal: str
    body: bytes


def vector_state(connection: Connection) -> VectorState:
    state = fetch_one(connection.execute(_SQL["state"]), VectorState)
    if state is None:
        raise StoreError("The database does not say which messages have vectors.")
    return state


def embed_batch(connection: Connection, embedder: Embedder) -> bool:
    """One batch, in one short transaction. Returns whether there may be more."""
    was = vector_state(connection)
    if was.made_by != embedder.name:
        _reset_vectors(connection, embedder.name)
        return True
    rows = fetch_all(connection.execute(_SQL["next"]), _NextRow)
    if not rows:
        return False
    places: list[tuple[_NextRow, int]] = []
    texts: list[str] = []
    for row in rows:
        for part, text in enumerate(_passages(row)):
            places.append((row, part))
            texts.append(text)
    bodies = pack_vectors(embedder.embed(texts)) if texts else []
    begin_write(connection, 1)
    try:
        # What was read may have been deleted since, and its id given to something else.
        if vector_state(connection).epoch == was.epoch:
            connection.executemany(
                _SQL["add"],
                [
                    (row.id, part, row.session, row.role, body)
                    for (row, part), body in zip(places, bodies, strict=True)
                ],
            )
            connection.execute(_SQL["mark"], {"upto": rows[-1].id})
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


class _Block(Struct, frozen=True):
    """What is kept in memory of many vectors, column by column."""

    messages: NDArray[np.int64]
    parts: NDArray[np.uint8]
    roles: NDArray[np.uint8]
    whose: NDArray[np.uint64]
    signs: NDArray[np.uint64]

    @classmethod
    def of(cls, rows: Sequence[_VectorRow]) -> "_Block":
        tags = {name: _principal_tag(name) for name in {row.principal for row in rows}}
        return cls(
            np.array([row.message for row in rows], np.int64),
            np.array([row.part for row in rows], np.uint8),
            np.array([_ROLES.get(row.role, 0) for row in rows], np.uint8),
            np.array([tags[row.principal] for row in rows], np.uint64),
            _signs(unpack_vectors([row.body for row in rows])),
        )

    @classmethod
    def joined(cls, blocks: Sequence["_Block"]) -> "_Block":
        return cls(
            np.concatenate([block.messages for block in blocks]),
            np.concatenate([block.parts for block in blocks]),
            np.concatenate([block.roles for block in blocks]),
            np.concatenate([block.whose for block in blocks]),
            np.concatenate([block.signs for block in blocks], axis=1),
        )


class Vectors:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state = VectorState(0, -1, "")
        self._block = _Block.of([])

    def nearest(
        self, connection: Connection, wanted: Floats, principal: str, role: str | None
    ) -> list[VectorHit]:
        """The nearest first, each message once, of what this principal may see."""
        with self._lock:
            self._refresh(connection)
            block = self._block
        found = [
            VectorHit(int(block.messages[place]), int(block.parts[place]))
            for place in _candidates(block, wanted, principal, role)
        ]
        return _by_similarity(connection, found, wanted)

    def _refresh(self, connection: Connection) -> None:
        """Read what came since; all of it when ids may have been given again."""
        state = vector_state(connection)
        if state.epoch != self._state.epoch:
            self._block = _Block.of([])
            self._state = VectorState(max(0, state.upto - MAX_MESSAGES), state.epoch, state.made_by)
        if state.upto <= self._state.upto:
            return
        blocks = [self._block]
        rows = iter(connection.execute(_SQL["load"], {"after": self._state.upto}))
        while some := [row_as(row, _VectorRow) for row in islice(rows, _LOAD_BATCH)]:
            whole = [row for row in some if is_valid_vector(row.body)]
            if len(whole) < len(some):
                log.warning("%d damaged vectors are left out", len(some) - len(whole))
            blocks.append(_Block.of(whole))
        self._block = _Block.joined(blocks)
        self._state = state


def _reset_vectors(connection: Connection, made_by: str) -> None:
    """Vectors of other weights cannot be compared with ours."""
    begin_write(connection, 1)
    try:
        connection.execute(_SQL["forget all"])
        connection.execute(_SQL["begin again"], {"made_by": made_by})
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _passages(row: _NextRow) -> list[str]:
    if not row.body:
        return []
    try:
        return passages(text_of(decode_message(row.body, f"Message row {row.id}")))
    except StoreError as error:
        log.warning("a message gets no vector: %s", error)
        return []


def _candidates(
    block: _Block, wanted: Floats, principal: str, role: str | None
) -> Sequence[np.intp]:
    if not len(block.messages):
        return []
    apart = np.bitwise_count(block.signs ^ _signs(wanted.reshape(1, -1))).sum(
        axis=0, dtype=np.uint16
    )
    if principal != OWNER:
        apart[block.whose != _principal_tag(principal)] = _EXCLUDED_DISTANCE
    if role is not None:
        apart[block.roles != _ROLES.get(role, 0)] = _EXCLUDED_DISTANCE
    count = min(CANDIDATES, len(apart))
    nearest = np.argpartition(apart, count - 1)[:count]
    return [place for place in nearest if apart[place] < _EXCLUDED_DISTANCE]


def _by_similarity(
    connection: Connection, found: Sequence[VectorHit], wanted: Floats
) -> list[VectorHit]:
    """By the numbers on disk, so that what is gone or was replaced since counts as it is now."""
    there: list[VectorHit] = []
    bodies: list[bytes] = []
    for near in found:
        for row in connection.execute(_SQL["vector"], (near.message, near.part)):
            body = row_as(row, _BodyRow).body
            if is_valid_vector(body):
                bodies.append(body)
                there.append(near)
    rows = unpack_vectors(bodies).astype(np.float32)
    length = np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    alike = (rows @ wanted.reshape(-1)) / length
    best: dict[int, VectorHit] = {}
    for place in np.argsort(-alike):
        near = there[int(place)]
        if alike[place] >= MIN_SIMILARITY:
            best.setdefault(near.message, near)
    return list(best.values())


def _signs(rows: NDArray[np.int8] | Floats) -> NDArray[np.uint64]:
    """Four columns of 64 signs each, the columns one after the other."""
    bits = np.packbits(rows > 0, axis=1).view(np.uint64)
    return np.ascontiguousarray(bits.T)


def _principal_tag(principal: str) -> int:
    return int.from_bytes(sha256(principal.encode()).digest()[:8], "big")
