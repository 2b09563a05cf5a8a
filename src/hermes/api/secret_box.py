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
from hermes.kit.files import read_regular_file, write_error_hint
from hermes.schema.errors import ConfigError

KEY_FILE = "callback.key"
_KEY_BYTES = 32
_NONCE_BYTES = 16
_MAC_BYTES = 32


class SecretUnreadable(ValueError):
    """What was kept cannot be read with this home's key."""


class SecretBox:
    """The key is made when it is first needed; without it what was sealed is lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def closed(self, secret: str, owner: str) -> str:
        """Raises `ConfigError` when the key can be neither read nor made."""
        key = self._read() or self._make()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = _xor_stream(secret.encode(), key, nonce)
        return base64.b64encode(nonce + _mac(key, nonce, hidden, owner) + hidden).decode()

    def opened(self, sealed: str, owner: str) -> str:
        """Raises `SealBroken`."""
        try:
            key = self._read()
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ConfigError) as error:
            raise SecretUnreadable(str(error)) from error
        nonce, mark, hidden = (
            data[:_NONCE_BYTES],
            data[_NONCE_BYTES:][:_MAC_BYTES],
            data[_NONCE_BYTES + _MAC_BYTES :],
        )
        if not key or not hmac.compare_digest(mark, _mac(key, nonce, hidden, owner)):
            raise SecretUnreadable(
                f"{self._path} is not what it was sealed with; register it again."
            )
        return _xor_stream(hidden, key, nonce).decode()

    def _read(self) -> bytes:
        try:
            key = read_regular_file(self._path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._unusable(error) from error
        if len(key) != _KEY_BYTES:
            raise ConfigError(f"{self._path} is damaged.", hint="Restore it, or take it away.")
        return key

    def _make(self) -> bytes:
        """Two may do it at once: the first one's counts, and nobody sees half of it."""
        draft = self._path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
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
            f"{self._path} cannot be used: {error.strerror}.",
            hint=write_error_hint(error, "Check its home."),
        )


def secret_box_of(home: Home) -> SecretBox:
    return SecretBox(home.path / KEY_FILE)


def _xor_stream(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(b"callback stream" + key + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def _mac(key: bytes, nonce: bytes, hidden: bytes, owner: str) -> bytes:
    text = b"callback mark" + nonce + len(hidden).to_bytes(4) + hidden + owner.encode()
    return hmac.digest(key, text, "sha256")
