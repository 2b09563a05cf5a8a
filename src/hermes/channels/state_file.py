"""Store a channel's state between runs, such as how far it has read."""

import logging
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.kit.files import read_regular_file, write_atomic
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.channel import ChannelDeps
from hermes.schema.scope import platform_of

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Struct)

MAX_FILE = 4 * 1024 * 1024


class StateFile(Generic[T]):
    """One Struct in JSON, readable for the owner only."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        self._path = path
        self._kind = kind

    def read(self) -> T | None:
        """Return the stored state; None if there is no usable one."""
        try:
            return msgspec.json.decode(read_regular_file(self._path, MAX_FILE), type=self._kind)
        except FileNotFoundError:
            return None
        except (OSError, *JSON_ERRORS) as error:
            log.warning("%s cannot be used: %s", self._path, error)
            return None

    async def write(self, state: T) -> None:
        """Replace the file atomically. Raises `OSError`."""
        # Encoded here: the state may change while the thread writes.
        await run_sync(partial(self._write, msgspec.json.encode(state)))

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self._path, data, mode=0o600)


def state_path(deps: ChannelDeps) -> Path:
    """Where the account's position is stored."""
    platform, name = platform_of(deps.name), deps.name.replace("/", "-")
    return deps.home / "cache" / platform / f"{name}.json"
