"""Sign the agent's device with the key of its account, which the recovery key unlocks.

Other clients then show the device as verified by its owner.
"""

import base64
import binascii
import hmac

import msgspec
from Crypto.Cipher import AES
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa
from msgspec import Struct

from hermes.channels.matrix.client_api import ClientApi
from hermes.channels.matrix.encryption import Encryption
from hermes.channels.matrix.objects import Login
from hermes.schema.errors import ConfigError

SELF_SIGNING = "m.cross_signing.self_signing"
_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PREFIX = b"\x8b\x01"
_WRONG = "Check MATRIX_RECOVERY_KEY: it is the account's recovery key, 48 letters and digits."


class _DefaultKey(Struct, frozen=True):
    key: str


class _KeyDescription(Struct, frozen=True):
    iv: str
    mac: str


class _EncryptedSecret(Struct, frozen=True):
    iv: str
    ciphertext: str
    mac: str


class _Secret(Struct, frozen=True):
    encrypted: dict[str, _EncryptedSecret]


class _PublicKey(Struct, frozen=True):
    keys: dict[str, str]

    @property
    def value(self) -> str:
        return next(iter(self.keys.values()), "")


class _AccountKeys(Struct, frozen=True, kw_only=True):
    master_keys: dict[str, _PublicKey] = {}
    self_signing_keys: dict[str, _PublicKey] = {}


async def sign_device(
    api: ClientApi, login: Login, encryption: Encryption, recovery_key: str
) -> dict[str, str]:
    """Sign the device, and return the account's public key by its name.

    Without a recovery key nothing happens. Raises `ConfigError` if the key does not match.
    """
    if not recovery_key.strip():
        return {}
    secret = decode_recovery_key(recovery_key)
    user = login.user_id
    fields = {"device_keys": {user: list[str]()}}
    public = await api.post_keys("query", fields, _AccountKeys)
    master, own = public.master_keys.get(user), public.self_signing_keys.get(user)
    if master is None or own is None:
        raise ConfigError(
            f"MATRIX_RECOVERY_KEY is set, but {user} has no cross-signing keys.",
            hint="Set up secure backup for the account in another client, or remove the variable.",
        )
    seed = await _self_signing_seed(api, user, secret)
    key = ECC.construct(curve="Ed25519", seed=seed)
    if _encode(key.public_key().export_key(format="raw")) != own.value:
        raise ConfigError("The recovery key belongs to another account.", hint=_WRONG)
    keys = encryption.device_keys()
    keys.pop("signatures")
    text = msgspec.json.encode(keys, order="deterministic")
    signature = _encode(eddsa.new(key, "rfc8032").sign(text))
    signed = {**keys, "signatures": {user: {f"ed25519:{own.value}": signature}}}
    await api.post_keys("signatures/upload", {user: {login.device_id: signed}}, object)
    return {f"ed25519:{master.value}": master.value}


async def _self_signing_seed(api: ClientApi, user: str, secret: bytes) -> bytes:
    default = await api.account_data(user, "m.secret_storage.default_key", _DefaultKey)
    name = f"m.secret_storage.key.{default.key}" if default is not None else ""
    described = await api.account_data(user, name, _KeyDescription) if name else None
    stored = await api.account_data(user, SELF_SIGNING, _Secret)
    encrypted = stored.encrypted.get(default.key) if stored and default else None
    if described is None or encrypted is None:
        raise ConfigError(
            f"MATRIX_RECOVERY_KEY is set, but {user} has no secret storage.",
            hint="Set up secure backup for the account in another client, or remove the variable.",
        )
    _, proof = encrypt_secret(secret, "", bytes(32), _decode(described.iv))
    if not hmac.compare_digest(_decode(described.mac), proof):
        raise ConfigError("The recovery key does not match this account.", hint=_WRONG)
    return _decode(_decrypt_secret(secret, SELF_SIGNING, encrypted).decode())


def _decrypt_secret(secret: bytes, name: str, encrypted: _EncryptedSecret) -> bytes:
    aes, mac = _derive(secret, name)
    ciphertext = _decode(encrypted.ciphertext)
    if not hmac.compare_digest(hmac.digest(mac, ciphertext, "sha256"), _decode(encrypted.mac)):
        raise ConfigError("A stored secret of the account was tampered with.", hint=_WRONG)
    return _aes(aes, _decode(encrypted.iv), ciphertext)


def encrypt_secret(secret: bytes, name: str, data: bytes, iv: bytes) -> tuple[bytes, bytes]:
    """The encrypted data and its authentication code."""
    aes, mac = _derive(secret, name)
    ciphertext = _aes(aes, iv, data)
    return ciphertext, hmac.digest(mac, ciphertext, "sha256")


def decode_recovery_key(text: str) -> bytes:
    number = 0
    try:
        for sign in "".join(text.split()):
            number = number * 58 + _ALPHABET.index(sign)
        data = number.to_bytes(35, "big")
    except (ValueError, OverflowError) as error:
        raise ConfigError("The recovery key contains invalid characters.", hint=_WRONG) from error
    parity = 0
    for byte in data:
        parity ^= byte
    if not data.startswith(_PREFIX) or parity:
        raise ConfigError("The recovery key is mistyped.", hint=_WRONG)
    return data[2:34]


def encode_recovery_key(secret: bytes) -> str:
    """Write 32 bytes as people copy them: in groups of four letters and digits."""
    parity, data = 0, _PREFIX + secret
    for byte in data:
        parity ^= byte
    number, text = int.from_bytes(data + bytes([parity]), "big"), ""
    while number:
        number, rest = divmod(number, 58)
        text = _ALPHABET[rest] + text
    return " ".join(text[start : start + 4] for start in range(0, len(text), 4))


def _derive(secret: bytes, name: str) -> tuple[bytes, bytes]:
    """Two keys by HKDF (RFC 5869) with an empty salt."""
    whole = hmac.digest(bytes(32), secret, "sha256")
    first = hmac.digest(whole, name.encode() + b"\x01", "sha256")
    return first, hmac.digest(whole, first + name.encode() + b"\x02", "sha256")


def _aes(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt: in counter mode both are the same."""
    return AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=iv).encrypt(data)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ConfigError("A stored secret of the account is malformed.") from error
