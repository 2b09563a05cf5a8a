"""Store logins in progress, such as a passkey challenge; each can be finished once, and soon.

They are kept in a file beside the logins, so that any process that serves the page can finish them,
even after a restart. Only hashes of the tokens are stored.
"""

import hashlib
import logging
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.files import open_locked, write_atomic
from hermes.kit.json_errors import JSON_ERRORS

log = logging.getLogger(__name__)

LIFETIME = timedelta(minutes=10)
MAX_PER_ADDRESS = 20
MAX_ALL = 1000


class _Begun(Struct, frozen=True, kw_only=True):
    """`value` is not secret: it does not suffice to finish a login."""

    digest: str
    address: str
    expires: datetime
    value: str


class PendingLogins:
    """Values by random token. One client address cannot evict the logins of others."""

    def __init__(self, folder: Path, kind: str, clock: Clock) -> None:
        """`kind` is the login method, such as `oidc`; a token is valid for that method only."""
        self._path = folder / f"pending-{kind}.json"
        self._lock = folder / f"pending-{kind}.lock"
        self._clock = clock

    def add(self, address: str, value: str) -> str:
        token = secrets.token_urlsafe(32)
        expires = self._clock.now() + LIFETIME
        one = _Begun(digest=_digest(token), address=address, expires=expires, value=value)
        with self._changing() as pending:
            own = [index for index, other in enumerate(pending) if other.address == address]
            if len(own) >= MAX_PER_ADDRESS:
                del pending[own[0]]
            del pending[: -MAX_ALL + 1]
            pending.append(one)
        return token

    def take(self, token: str) -> str | None:
        """Return the value once, within its lifetime."""
        digest = _digest(token)
        with self._changing() as pending:
            for index, one in enumerate(pending):
                if one.digest == digest:
                    del pending[index]
                    return one.value
        return None

    @contextmanager
    def _changing(self) -> Generator[list[_Begun]]:
        """Lock the file, and store the list as the block leaves it."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_locked(self._lock):
            stored, now = self._read(), self._clock.now()
            # An expiry that is too far away was stored before the clock was set back.
            pending = [one for one in stored if now < one.expires <= now + LIFETIME]
            yield pending
            if pending != stored:
                # A login lost in a power failure can be started again.
                write_atomic(self._path, msgspec.json.encode(pending), mode=0o600, durable=False)

    def _read(self) -> list[_Begun]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[_Begun])
        except FileNotFoundError:
            return []
        except JSON_ERRORS as error:
            log.warning("logins in progress in %s are lost: %s", self._path, error)
            return []


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
