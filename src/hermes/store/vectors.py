"""Text embeddings: compute them locally, store them, and find the nearest ones.

The weights are the data of a package. It is not imported, because that would load an HTTP client
and change logging. Of the stored vectors, only the signs (32 bytes each) are kept in memory to
select candidates; the nearest few hundred are then read and compared exactly.
"""

import logging
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.store.connection import Connection, load_statements, write_transaction
from hermes.store.rows import decode_message, fetch_all, fetch_one, row_as
from hermes.store.search_index import shown_text

DIMENSIONS = 256
PASSAGE_CHARACTERS = 600
"""Characters per vector: the mean of a longer text is not specific enough."""
MAX_PASSAGES = 4
"""Passages per message, from its beginning."""
_PACKAGE = "wordllama"
_NAME = f"l2_supercat_{DIMENSIONS}"
_TENSOR = "embedding.weight"
_LARGEST_VALUE = 127

Floats: TypeAlias = NDArray[np.float32]
_SQL = load_statements("vectors")
log = logging.getLogger(__name__)
MIN_SIMILARITY = 0.22
"""Minimum cosine similarity of a hit."""
CANDIDATES = 256
MAX_MESSAGES = 2_000_000
"""How many messages, from the newest, are considered: about 60 bytes of memory each."""
_LOAD_BATCH = 20_000
_EXCLUDED_DISTANCE = 1_000
_ROLES = {"user": 1, "assistant": 2}


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class Embedder:
    """Averages the token embeddings of a text. `name` identifies the weights."""

    name = _NAME

    def __init__(self, weights: NDArray[np.float16], tokenizer: Tokenizer) -> None:
        self._weights = weights
        self._tokenizer = tokenizer

    @classmethod
    def load(cls) -> "Embedder":
        spec = find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise StoreError(f"The package {_PACKAGE} is not installed.")
        folder = Path(spec.origin).parent
        tokenizer = Tokenizer.from_file(
            str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
        )
        return cls(_weights(folder / "weights" / f"{_NAME}.safetensors"), tokenizer)

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of unit length per text; zeros for empty texts."""
        rows = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in zip(rows, texts, strict=True):
            # One by one: a batch would occupy all processors, which turns need.
            pieces = self._tokenizer.encode(text, add_special_tokens=False).ids
            if pieces:
                row[:] = self._weights[pieces].astype(np.float32).mean(axis=0)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


def passages(text: str) -> list[str]:
    """Split the beginning of a text into passages that end between words."""
    found: list[str] = []
    rest = text.strip()
    while rest and len(found) < MAX_PASSAGES:
        end = (
            len(rest)
            if len(rest) <= PASSAGE_CHARACTERS
            else rest.rfind(" ", PASSAGE_CHARACTERS // 2, PASSAGE_CHARACTERS)
        )
        end = PASSAGE_CHARACTERS if end < 0 else end
        found.append(rest[:end])
        rest = rest[end:].lstrip()
    return found


def pack_vectors(rows: Floats) -> list[bytes]:
    """Pack each value into a byte, scaled to the row's maximum."""
    top = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-9)
    return [row.tobytes() for row in np.rint(rows / top * _LARGEST_VALUE).astype(np.int8)]


def is_valid_vector(body: bytes) -> bool:
    """Whether it can be unpacked: a row may be foreign or truncated."""
    return len(body) == DIMENSIONS


def unpack_vectors(bodies: Sequence[bytes]) -> NDArray[np.int8]:
    """Unpack valid vectors."""
    return np.frombuffer(b"".join(bodies), np.int8).reshape(-1, DIMENSIONS)


def _weights(path: Path) -> NDArray[np.float16]:
    """Map the file: few of the words are used, and the system caches those."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        head = msgspec.json.decode(file.read(size), type=dict[str, _Tensor])
    tensor = head.get(_TENSOR)
    if tensor is None or tensor.dtype != "F16" or tensor.shape[1:] != [DIMENSIONS]:
        raise StoreError(f"{path} does not contain the expected weights.")
    start = 8 + size + tensor.data_offsets[0]
    return np.memmap(path, np.float16, "r", start, (tensor.shape[0], DIMENSIONS))


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
    session: int
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
    vectors = [
        (row.id, part, row.session, row.role, body)
        for (row, part), body in zip(positions, bodies, strict=True)
    ]
    with write_transaction(connection, tries=1):
        # Messages may have been deleted since, and their ids reused.
        if vector_state(connection).epoch == before.epoch:
            connection.executemany(_SQL["add"], vectors)
            connection.execute(_SQL["mark"], {"upto": rows[-1].id})
    return True


class _Block(Struct, frozen=True):
    """The in-memory columns of many vectors."""

    messages: NDArray[np.int64]
    parts: NDArray[np.uint8]
    sessions: NDArray[np.int64]
    roles: NDArray[np.uint8]
    whose: NDArray[np.uint64]
    signs: NDArray[np.uint64]

    @classmethod
    def of(cls, rows: Sequence[_VectorRow]) -> "_Block":
        tags = {name: _principal_tag(name) for name in {row.principal for row in rows}}
        return cls(
            np.array([row.message for row in rows], np.int64),
            np.array([row.part for row in rows], np.uint8),
            np.array([row.session for row in rows], np.int64),
            np.array([_ROLES.get(row.role, 0) for row in rows], np.uint8),
            np.array([tags[row.principal] for row in rows], np.uint64),
            _signs(unpack_vectors([row.body for row in rows])),
        )

    @classmethod
    def joined(cls, blocks: Sequence["_Block"]) -> "_Block":
        return cls(
            np.concatenate([block.messages for block in blocks]),
            np.concatenate([block.parts for block in blocks]),
            np.concatenate([block.sessions for block in blocks]),
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
        self,
        connection: Connection,
        wanted: Floats,
        principal: str,
        role: str | None,
        sessions: Sequence[int] | None = None,
    ) -> list[VectorHit]:
        """The nearest first, each message once, restricted to what the principal may see.

        `sessions` are the numbers of those to search, if not all.
        """
        with self._lock:
            self._refresh(connection)
            block = self._block
        found = [
            VectorHit(int(block.messages[index]), int(block.parts[index]))
            for index in _candidates(block, wanted, principal, role, sessions)
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
    with write_transaction(connection, tries=1):
        connection.execute(_SQL["forget all"])
        connection.execute(_SQL["begin again"], {"made_by": made_by})


def _passages(row: _NextRow) -> list[str]:
    if not row.body:
        return []
    try:
        return passages(shown_text(decode_message(row.body, f"Message row {row.id}")))
    except StoreError as error:
        log.warning("skipped the vector of a message: %s", error)
        return []


def _candidates(
    block: _Block,
    wanted: Floats,
    principal: str,
    role: str | None,
    sessions: Sequence[int] | None,
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
    if sessions is not None:
        distances[~np.isin(block.sessions, sessions)] = _EXCLUDED_DISTANCE
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
