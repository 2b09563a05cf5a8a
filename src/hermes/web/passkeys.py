"""Verify a browser's response when a passkey is made or used (WebAuthn, level 2).

Attestation is not requested: the logged-in owner decides which passkeys count. So the public key is
accepted as the browser sends it, without parsing CBOR.
"""

import base64
import binascii
import hashlib
import hmac
from importlib.util import find_spec
from ipaddress import ip_address

import msgspec
from msgspec import Struct

from hermes.kit.errors import ConfigError, UsageError
from hermes.kit.installation import extra_requirements, install_command
from hermes.kit.json_errors import JSON_ERRORS
from hermes.web.logins import Passkey
from hermes.web.texts import text

ES256, EDDSA, RS256 = -7, -8, -257
ALGORITHMS = (ES256, EDDSA, RS256)
MAX_ID = 1023
_PRESENT, _VERIFIED = 0x01, 0x04
_HEADER = 37
"""Minimum bytes of authenticator data: hash of the host, flags, counter."""


class NewPasskey(Struct, frozen=True, rename="camel"):
    """What the browser sends after it has made a passkey; binary values are base64url."""

    id: str
    client_data: str
    authenticator_data: str
    public_key: str
    algorithm: int
    name: str = ""


class PasskeyAnswer(Struct, frozen=True, rename="camel"):
    """What the browser sends to log in."""

    id: str
    client_data: str
    authenticator_data: str
    signature: str


class Site(Struct, frozen=True):
    """The page's origin and host: `http://localhost:9119` and `localhost`."""

    origin: str
    host: str


class _ClientData(Struct, frozen=True, rename="camel"):
    type: str
    challenge: str
    origin: str
    cross_origin: bool = False


class PasskeyRejected(Exception):
    pass


def are_available() -> bool:
    """Whether the package that checks signatures is installed."""
    return find_spec("cryptography") is not None


def install_package() -> str:
    """The command that installs that package."""
    return install_command(*(extra_requirements("login") or ["cryptography"]))


def check_available(host: str) -> None:
    """Raises `ConfigError` or `UsageError` if passkeys cannot be used at this host."""
    if not are_available():
        raise ConfigError(text("passkey_package", command=install_package()))
    if not is_name(host):
        raise UsageError(text("passkey_name_only"))


def is_name(host: str) -> bool:
    """Whether the host is a name: browsers make no passkeys for IP addresses."""
    try:
        ip_address(host)
    except ValueError:
        return True
    return False


def challenge_of(client_data: str) -> str:
    """The challenge that the browser answers. Raises `PasskeyRejected`."""
    return _client_data(client_data).challenge


def registered_key(created: NewPasskey, site: Site) -> bytes:
    """The public key of a new passkey. Raises `PasskeyRejected`."""
    _check_client_data(created.client_data, "webauthn.create", site)
    _check_authenticator(_decoded(created.authenticator_data), site)
    if created.algorithm not in ALGORITHMS or not 0 < len(_decoded(created.id)) <= MAX_ID:
        raise PasskeyRejected("algorithm or id")
    key = _decoded(created.public_key)
    _load_key(key, created.algorithm)
    return key


def check_answer(passkey: Passkey, answer: PasskeyAnswer, site: Site) -> int:
    """The counter of the passkey after this use. Raises `PasskeyRejected`."""
    if passkey.host != site.host:
        raise PasskeyRejected("passkey of another host")
    _check_client_data(answer.client_data, "webauthn.get", site)
    data = _decoded(answer.authenticator_data)
    count = _check_authenticator(data, site)
    signed = data + hashlib.sha256(_decoded(answer.client_data)).digest()
    _check_signature(passkey, _decoded(answer.signature), signed)
    # Passkeys that are synchronised do not count.
    if (count or passkey.count) and count <= passkey.count:
        raise PasskeyRejected("the counter went back; the passkey may have been copied")
    return count


def _client_data(encoded: str) -> _ClientData:
    try:
        return msgspec.json.decode(_decoded(encoded), type=_ClientData)
    except JSON_ERRORS as error:
        raise PasskeyRejected("client data") from error


def _check_client_data(encoded: str, kind: str, site: Site) -> None:
    found = _client_data(encoded)
    if found.type != kind or found.origin != site.origin or found.cross_origin:
        raise PasskeyRejected(f"{found.type} for {found.origin}")


def _check_authenticator(data: bytes, site: Site) -> int:
    """The counter, if the data is for our host and the person was verified."""
    expected = hashlib.sha256(site.host.encode()).digest()
    if len(data) < _HEADER or not hmac.compare_digest(data[:32], expected):
        raise PasskeyRejected("data for another host")
    if data[32] & _PRESENT == 0 or data[32] & _VERIFIED == 0:
        raise PasskeyRejected("the person was not verified")
    return int.from_bytes(data[33:_HEADER])


def _load_key(key: bytes, algorithm: int) -> object:
    from cryptography.hazmat.primitives.asymmetric import (  # noqa: PLC0415 - an extra
        ec,
        ed25519,
        rsa,
    )
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - an extra
        load_der_public_key,
    )

    try:
        found = load_der_public_key(key)
    except ValueError as error:
        raise PasskeyRejected("public key") from error
    match algorithm, found:
        case (-7, ec.EllipticCurvePublicKey()) if isinstance(found.curve, ec.SECP256R1):
            return found
        case (-8, ed25519.Ed25519PublicKey()) | (-257, rsa.RSAPublicKey()):
            return found
        case _:
            raise PasskeyRejected("public key of another kind")


def _check_signature(passkey: Passkey, signature: bytes, signed: bytes) -> None:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
    from cryptography.hazmat.primitives.asymmetric import (  # noqa: PLC0415 - an extra
        ec,
        ed25519,
        padding,
        rsa,
    )
    from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - an extra

    key = _load_key(base64.b64decode(passkey.public_key), passkey.algorithm)
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, signed, ec.ECDSA(SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, padding.PKCS1v15(), SHA256())
        else:
            raise PasskeyRejected("public key of another kind")
    except InvalidSignature as error:
        raise PasskeyRejected("signature") from error


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error) as error:
        raise PasskeyRejected("base64") from error
