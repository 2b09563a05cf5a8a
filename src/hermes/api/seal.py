"""Secrets kept so that the database alone does not tell them: the key is a file beside it.

A secret is hidden by a stream that no second one gets, and marked, so that a changed one is
noticed; the mark also covers what the secret belongs to.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from hermes.config.home import Home
from hermes.kit.files import advice, read_ordinary
from hermes.schema.errors import ConfigError

FILE = "callback.key"
_KEY = 32
_NONCE = 16
_MARK = 32


class SealBroken(ValueError):
    """What was kept cannot be read with this home's key."""


class Seal:
    """The key is made when it is first needed; without it what was sealed is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def closed(self, secret: str, owner: str) -> str:
        """Raises `ConfigError` when the key can be neither read nor made."""
        key = self._read() or self._make()
        nonce = secrets.token_bytes(_NONCE)
        hidden = _crossed(secret.encode(), key, nonce)
        return base64.b64encode(nonce + _mark(key, nonce, hidden, owner) + hidden).decode()

    def opened(self, sealed: str, owner: str) -> str:
        """Raises `SealBroken`."""
        try:
            key = self._read()
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ConfigError) as error:
            raise SealBroken(str(error)) from error
        nonce, mark, hidden = data[:_NONCE], data[_NONCE:][:_MARK], data[_NONCE + _MARK :]
        if not key or not hmac.compare_digest(mark, _mark(key, nonce, hidden, owner)):
            raise SealBroken(f"{self._path} is not what it was sealed with; register it again.")
        return _crossed(hidden, key, nonce).decode()

    def _read(self) -> bytes:
        try:
            key = read_ordinary(self._path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable(error) from error
        if len(key) != _KEY:
            raise ConfigError(f"{self._path} is damaged.", hint="Restore it, or take it away.")
        return key

    def _make(self) -> bytes:
        """Two may do it at once: the first one's counts, and nobody sees half of it."""
        draft = self._path.with_name(f"{FILE}.{secrets.token_hex(4)}")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_KEY))
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(draft, self._path)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error
        return self._read()

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"{self._path} cannot be used: {error.strerror}.", hint=advice(error, "Check its home.")
        )


def seal_of(home: Home) -> Seal:
    return Seal(home.path / FILE)


def _crossed(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(b"callback stream" + key + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def _mark(key: bytes, nonce: bytes, hidden: bytes, owner: str) -> bytes:
    text = b"callback mark" + nonce + len(hidden).to_bytes(4) + hidden + owner.encode()
    return hmac.digest(key, text, "sha256")
