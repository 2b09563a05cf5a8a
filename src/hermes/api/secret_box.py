"""Encrypt callback secrets with a key file, so that the database alone does not reveal them.

Each secret is encrypted with a unique key stream and authenticated together with its owner, so that
changes are detected.
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
    """The stored secret cannot be decrypted with this home's key."""


class SecretBox:
    """Encrypts secrets. The key file is created on first use; without it, secrets are lost."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def encrypt(self, secret: str, owner: str) -> str:
        """Encrypt. Raises `ConfigError` if the key can be neither read nor created."""
        key = self._read() or self._make()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        ciphertext = _xor_stream(secret.encode(), key, nonce)
        return base64.b64encode(nonce + _mac(key, nonce, ciphertext, owner) + ciphertext).decode()

    def decrypt(self, sealed: str, owner: str) -> str:
        """Decrypt. Raises `SecretUnreadable`."""
        try:
            key = self._read()
            data = base64.b64decode(sealed, validate=True)
        except (binascii.Error, ConfigError) as error:
            raise SecretUnreadable(str(error)) from error
        nonce, mac, ciphertext = (
            data[:_NONCE_BYTES],
            data[_NONCE_BYTES:][:_MAC_BYTES],
            data[_NONCE_BYTES + _MAC_BYTES :],
        )
        if not key or not hmac.compare_digest(mac, _mac(key, nonce, ciphertext, owner)):
            raise SecretUnreadable(
                f"{self._path} is not the key it was encrypted with. Register the callback again."
            )
        return _xor_stream(ciphertext, key, nonce).decode()

    def _read(self) -> bytes:
        try:
            key = read_regular_file(self._path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise self._key_error(error) from error
        if len(key) != _KEY_BYTES:
            raise ConfigError(
                f"{self._path} is damaged.", hint=("Restore it from a backup, or delete it.")
            )
        return key

    def _make(self) -> bytes:
        """Create the key file atomically; if two processes race, the first one wins."""
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
            raise self._key_error(error) from error
        return self._read()

    def _key_error(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"Cannot use {self._path}: {error.strerror}.",
            hint=write_error_hint(error, "Check the permissions of this folder."),
        )


def secret_box_of(home: Home) -> SecretBox:
    return SecretBox(home.path / KEY_FILE)


def _xor_stream(data: bytes, key: bytes, nonce: bytes) -> bytes:
    stream = hashlib.shake_256(b"callback stream" + key + nonce).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def _mac(key: bytes, nonce: bytes, ciphertext: bytes, owner: str) -> bytes:
    text = b"callback mark" + nonce + len(ciphertext).to_bytes(4) + ciphertext + owner.encode()
    return hmac.digest(key, text, "sha256")
