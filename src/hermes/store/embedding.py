"""Compute text embeddings locally, with weights from a package.

Only the package's data is read: importing it would load an HTTP client and change logging.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from hermes.schema.errors import StoreError

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
        raise StoreError(f"{path} does not hold the weights that were expected.")
    start = 8 + size + tensor.data_offsets[0]
    return np.memmap(path, np.float16, "r", start, (tensor.shape[0], DIMENSIONS))
