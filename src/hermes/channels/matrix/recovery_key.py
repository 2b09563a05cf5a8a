"""Create the cross-signing keys of an account that has none, and a file with its recovery key."""

import base64
import logging
import os
from pathlib import Path

import anyio.to_thread
import msgspec
from Crypto.PublicKey import ECC
from Crypto.PublicKey.ECC import EccKey
from Crypto.Signature import eddsa
from msgspec import Struct

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.cross_signing import (
    decode_recovery_key,
    encode_recovery_key,
    encrypt_secret,
)
from hermes.kit.errors import TemporaryError
from hermes.kit.files import read_regular_file, write_atomic
from hermes.ports.channel import NotSent
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

USAGES = ("master", "self_signing", "user_signing")
_DEFAULT = "m.secret_storage.default_key"
_NAME = "hermes"
"""The name of our own key in the account's secret storage."""


class _MasterKeys(Struct, frozen=True):
    master_keys: dict[str, object] = {}


class _DefaultKey(Struct, frozen=True):
    key: str = ""


async def stored_recovery_key(api: ClientApi, user: str, password: str, path: Path) -> str:
    """Return the recovery key in the file; if the account has no keys, create both.

    Empty if the account has keys of another client. Raises `ConfigError` if that is impossible.
    """
    known = await anyio.to_thread.run_sync(_read, path)
    public = await api.post_keys("query", {"device_keys": {user: list[str]()}}, _MasterKeys)
    if user in public.master_keys:
        if not known:
            log.warning("%s has keys already: set MATRIX_RECOVERY_KEY to sign the device.", user)
        return known
    default = await api.account_data(user, _DEFAULT, _DefaultKey)
    if default is not None and default.key not in {"", _NAME}:
        raise ConfigError(
            f"{user} has secret storage, but no cross-signing keys.",
            hint="Set them up in another client, or remove MATRIX_RECOVERY_KEY_OUTPUT_FILE.",
        )
    # Stored first: keys on the server would be lost without it.
    text = known or encode_recovery_key(os.urandom(32))
    if not known:
        await anyio.to_thread.run_sync(_write, path, text)
    await _create_keys(api, user, password, decode_recovery_key(text))
    log.warning("The recovery key of %s is in %s: keep it in a safe place.", user, path)
    return text


async def _create_keys(api: ClientApi, user: str, password: str, secret: bytes) -> None:
    """Store the private keys encrypted with `secret`, then publish the public ones."""
    seeds = {usage: os.urandom(32) for usage in USAGES}
    iv = _new_iv()
    _, proof = encrypt_secret(secret, "", bytes(32), iv)
    description: dict[str, object] = {
        "algorithm": "m.secret_storage.v1.aes-hmac-sha2",
        "iv": _encode(iv),
        "mac": _encode(proof),
    }
    await api.set_account_data(user, f"m.secret_storage.key.{_NAME}", description)
    for usage, seed in seeds.items():
        name, iv = f"m.cross_signing.{usage}", _new_iv()
        ciphertext, mac = encrypt_secret(secret, name, _encode(seed).encode(), iv)
        encrypted = {"iv": _encode(iv), "ciphertext": _encode(ciphertext), "mac": _encode(mac)}
        await api.set_account_data(user, name, {"encrypted": {_NAME: encrypted}})
    await api.set_account_data(user, _DEFAULT, {"key": _NAME})
    fields = _public_keys(user, seeds)
    if password:
        identifier = {"type": "m.id.user", "user": user}
        fields["auth"] = {
            "type": "m.login.password", "identifier": identifier, "password": password,
        }  # fmt: skip
    try:
        await api.post_keys("device_signing/upload", fields, object)
    except NotSent as error:
        raise ConfigError(
            f"The homeserver did not accept cross-signing keys: {error}",
            hint="Set up secure backup in another client, or remove "
            "MATRIX_RECOVERY_KEY_OUTPUT_FILE.",
        ) from error


def _public_keys(user: str, seeds: dict[str, bytes]) -> dict[str, object]:
    """Return the public keys; the master key signs the others."""
    keys = {usage: ECC.construct(curve="Ed25519", seed=seed) for usage, seed in seeds.items()}
    master, fields = keys["master"], dict[str, object]()
    for usage, key in keys.items():
        name = _public(key)
        content: dict[str, object] = {
            "user_id": user,
            "usage": [usage],
            "keys": {f"ed25519:{name}": name},
        }
        if key is not master:
            text = msgspec.json.encode(content, order="deterministic")
            signature = _encode(eddsa.new(master, "rfc8032").sign(text))
            content["signatures"] = {user: {f"ed25519:{_public(master)}": signature}}
        fields[f"{usage}_key"] = content
    return fields


def _public(key: EccKey) -> str:
    return _encode(key.public_key().export_key(format="raw"))


def _new_iv() -> bytes:
    """Half of it is the counter, which begins at zero: some libraries use 64 bits for it."""
    return os.urandom(8) + bytes(8)


def _read(path: Path) -> str:
    try:
        return read_regular_file(path).decode().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(path, f"{text}\n".encode(), mode=0o600)
    except OSError as error:
        raise TemporaryError(f"The recovery key cannot be stored: {error}.") from error


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")
