"""Skip updates that cannot be read: each is kept in a file and logged once."""

import hashlib
import logging
from collections.abc import Iterable
from email.errors import MessageError
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from hermes.kit.clock import Clock, SystemClock
from hermes.kit.files import append_line, open_locked
from hermes.kit.lru_map import LruMap
from hermes.ports.channel import ChannelDeps
from hermes.schema.errors import HermesError

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_UPDATE = 64 * 1024
MAX_FILE = 1024 * 1024
"""Bytes; a larger file becomes `.old` and a new one begins."""
MAX_REMEMBERED = 1_000
CONTENT_ERRORS = (
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    SyntaxError,  # of XML
    MessageError,
)
"""Errors that an update's content can cause; after other errors, the update may succeed later."""


class UnreadableUpdate(Struct, frozen=True, kw_only=True):
    """A line of the file."""

    at: str
    error: str
    update: str


class UnreadableUpdates:
    """Records the unreadable updates of one channel; without a `path` they are only logged."""

    def __init__(self, name: str, path: Path | None = None, clock: Clock | None = None) -> None:
        self._name = name
        self._path = path
        self._clock = clock or SystemClock()
        self._known: LruMap[bytes, bool] = LruMap(MAX_REMEMBERED)

    def skipping(self, update: object, key: str = "") -> "_Skipping":
        """Skip an update that cannot be read, because it would fail again each time it is sent.

        Errors that its content cannot cause, such as those of platform, disk and memory, are
        raised. `key` identifies the update if its content differs each time it is sent.
        """
        return _Skipping(self, update, key)

    def decode(self, data: bytes | str | Raw, kind: type[T]) -> T | None:
        """Decode an update; None if it cannot be read."""
        with self.skipping(data):
            return msgspec.json.decode(data, type=kind)
        return None

    def decode_each(self, items: Iterable[Raw], kind: type[T]) -> list[T]:
        """Decode the items that can be read."""
        found = (self.decode(raw, kind) for raw in items)
        return [item for item in found if item is not None]

    def decode_rest(self, data: bytes, kind: type[T], item: type) -> T:
        """Leave out objects in lists that are not an `item`. Raises `MsgspecError`."""
        rest = self._without_unreadable(msgspec.json.decode(data), item)
        return msgspec.json.decode(msgspec.json.encode(rest), type=kind)

    def _without_unreadable(self, value: Any, item: type) -> Any:
        match value:
            case dict():
                return {
                    name: self._without_unreadable(member, item)
                    for name, member in value.items()  # pyright: ignore[reportUnknownVariableType]
                }
            case list():
                items: list[object] = value  # pyright: ignore[reportUnknownVariableType]
                return [
                    entry
                    for entry in items
                    if not isinstance(entry, dict) or self._fits(entry, item)  # pyright: ignore[reportUnknownArgumentType]
                ]
            case _:
                return value

    def _fits(self, value: dict[str, object], item: type) -> bool:
        return self.decode(msgspec.json.encode(value), item) is not None

    def add(self, update: object, error: Exception | str, key: str = "") -> None:
        data = _bytes(update)
        digest = hashlib.sha256(key.encode() or data).digest()
        if self._known.get(digest):
            return
        self._known.put(digest, True)
        unexpected = not isinstance(error, msgspec.MsgspecError)
        log.warning(
            "%s: an update could not be read and was skipped: %s%s",
            self._name,
            error or type(error).__name__,
            f" (kept in {self._path})" if self._path is not None else "",
            exc_info=error if isinstance(error, Exception) and unexpected else None,
        )
        if self._path is not None:
            self._keep(self._path, data, f"{type(error).__name__}: {error}")

    def _keep(self, path: Path, data: bytes, error: str) -> None:
        text = data[:MAX_UPDATE].decode("utf-8", "replace")
        line = UnreadableUpdate(at=self._clock.now().isoformat(), error=error[:500], update=text)
        try:
            if path.exists() and path.stat().st_size > MAX_FILE:
                path.replace(path.with_suffix(".old"))
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open_locked(path) as file:
                path.chmod(0o600)
                append_line(file, msgspec.json.encode(line))
        except OSError as problem:
            log.warning("%s cannot be written: %s", path, problem)


class _Skipping:
    def __init__(self, updates: UnreadableUpdates, update: object, key: str) -> None:
        self._updates = updates
        self._update = update
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, CONTENT_ERRORS) or isinstance(error, HermesError | OSError):
            return False
        self._updates.add(self._update, error, self._key)
        return True


def _bytes(update: object) -> bytes:
    if isinstance(update, str):
        return update.encode("utf-8", "replace")
    if isinstance(update, bytes | Raw):
        return bytes(update)
    try:
        return msgspec.json.encode(update, enc_hook=repr)
    except CONTENT_ERRORS:
        # JSON has no lone surrogates.
        return repr(update).encode("utf-8", "replace")


def unreadable_updates(deps: ChannelDeps) -> UnreadableUpdates:
    """Return the record of unreadable updates of this account."""
    path = deps.home / "cache" / "unreadable" / f"{deps.name.replace('/', '-')}.jsonl"
    return UnreadableUpdates(deps.name, path, deps.clock)
