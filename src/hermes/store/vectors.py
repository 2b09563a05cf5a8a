"""All vectors of a database: their signs in memory, their values on disk.

The signs (32 bytes per vector) select candidates; only the nearest few hundred are then read and
compared exactly.
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
"""Minimum cosine similarity of a hit."""
CANDIDATES = 256
MAX_MESSAGES = 2_000_000
"""How many messages, from the newest, are considered: about 50 bytes of memory each."""
_LOAD_BATCH = 20_000
_EXCLUDED_DISTANCE = 1_000
_ROLES = {"user": 1, "assistant": 2}


class VectorState(Struct, array_like=True, frozen=True):
    upto: int
    epoch: int
    made_by: str


class VectorHit(Struct, frozen=True):
    """A message and its matching passage."""

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
        raise StoreError("The database has no vector state.")
    return state


def embed_batch(connection: Connection, embedder: Embedder) -> bool:
    """Process one batch in a short transaction. Return whether there may be more."""
    before = vector_state(connection)
    if before.made_by != embedder.name:
        _reset_vectors(connection, embedder.name)
        return True
    rows = fetch_all(connection.execute(_SQL["next"]), _NextRow)
    if not rows:
        return False
    positions: list[tuple[_NextRow, int]] = []
    texts: list[str] = []
    for row in rows:
        for part, text in enumerate(_passages(row)):
            positions.append((row, part))
            texts.append(text)
    bodies = pack_vectors(embedder.embed(texts)) if texts else []
    begin_write(connection, 1)
    try:
        # Messages may have been deleted since, and their ids reused.
        if vector_state(connection).epoch == before.epoch:
            connection.executemany(
                _SQL["add"],
                [
                    (row.id, part, row.session, row.role, body)
                    for (row, part), body in zip(positions, bodies, strict=True)
                ],
            )
            connection.execute(_SQL["mark"], {"upto": rows[-1].id})
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return True


class _Block(Struct, frozen=True):
    """The in-memory columns of many vectors."""

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
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state = VectorState(0, -1, "")
        self._block = _Block.of([])

    def nearest(
        self, connection: Connection, wanted: Floats, principal: str, role: str | None
    ) -> list[VectorHit]:
        """The nearest first, each message once, restricted to what the principal may see."""
        with self._lock:
            self._refresh(connection)
            block = self._block
        found = [
            VectorHit(int(block.messages[index]), int(block.parts[index]))
            for index in _candidates(block, wanted, principal, role)
        ]
        return _by_similarity(connection, found, wanted)

    def _refresh(self, connection: Connection) -> None:
        """Read new vectors; all of them when ids may have been reused."""
        state = vector_state(connection)
        if state.epoch != self._state.epoch:
            self._block = _Block.of([])
            self._state = VectorState(max(0, state.upto - MAX_MESSAGES), state.epoch, state.made_by)
        if state.upto <= self._state.upto:
            return
        blocks = [self._block]
        rows = iter(connection.execute(_SQL["load"], {"after": self._state.upto}))
        while batch := [row_as(row, _VectorRow) for row in islice(rows, _LOAD_BATCH)]:
            valid = [row for row in batch if is_valid_vector(row.body)]
            if len(valid) < len(batch):
                log.warning("skipped %d damaged vectors", len(batch) - len(valid))
            blocks.append(_Block.of(valid))
        self._block = _Block.joined(blocks)
        self._state = state


def _reset_vectors(connection: Connection, made_by: str) -> None:
    """Vectors of different weights cannot be compared."""
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
        log.warning("skipped the vector of a message: %s", error)
        return []


def _candidates(
    block: _Block, wanted: Floats, principal: str, role: str | None
) -> Sequence[np.intp]:
    if not len(block.messages):
        return []
    distances = np.bitwise_count(block.signs ^ _signs(wanted.reshape(1, -1))).sum(
        axis=0, dtype=np.uint16
    )
    if principal != OWNER:
        distances[block.whose != _principal_tag(principal)] = _EXCLUDED_DISTANCE
    if role is not None:
        distances[block.roles != _ROLES.get(role, 0)] = _EXCLUDED_DISTANCE
    count = min(CANDIDATES, len(distances))
    nearest = np.argpartition(distances, count - 1)[:count]
    return [index for index in nearest if distances[index] < _EXCLUDED_DISTANCE]


def _by_similarity(
    connection: Connection, found: Sequence[VectorHit], wanted: Floats
) -> list[VectorHit]:
    """Compare by the values on disk, so that deleted or replaced messages are handled."""
    existing: list[VectorHit] = []
    bodies: list[bytes] = []
    for hit in found:
        for row in connection.execute(_SQL["vector"], (hit.message, hit.part)):
            body = row_as(row, _BodyRow).body
            if is_valid_vector(body):
                bodies.append(body)
                existing.append(hit)
    rows = unpack_vectors(bodies).astype(np.float32)
    length = np.maximum(np.linalg.norm(rows, axis=1), 1e-9)
    similarity = (rows @ wanted.reshape(-1)) / length
    best: dict[int, VectorHit] = {}
    for index in np.argsort(-similarity):
        hit = existing[int(index)]
        if similarity[index] >= MIN_SIMILARITY:
            best.setdefault(hit.message, hit)
    return list(best.values())


def _signs(rows: NDArray[np.int8] | Floats) -> NDArray[np.uint64]:
    """Four columns of 64 signs each, stored column by column."""
    bits = np.packbits(rows > 0, axis=1).view(np.uint64)
    return np.ascontiguousarray(bits.T)


def _principal_tag(principal: str) -> int:
    return int.from_bytes(sha256(principal.encode()).digest()[:8], "big")
