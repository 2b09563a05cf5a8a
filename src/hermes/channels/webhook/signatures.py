"""Verify webhook signatures over the raw body in constant time.

Only signed content can be trusted. `Proof.digest` covers all signed content, so that a repetition
is recognized whatever unsigned headers it has.

All schemes share one secret, and some sign a time or an id before the body. To keep content signed
for one scheme from being accepted as the body of another, no body may begin like such a prefix.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import assert_never

from msgspec import Struct

from hermes.channels.http_calls import CallRejected

TOLERANCE = 300
"""Seconds the sender's clock may differ, and that a signed call stays valid."""

_UNSIGNED = "The call has no known signature."
_PREFIX = "whsec_"
_MOST_SIGNATURES = 16
_PREFIXED = re.compile(rb"\d+\.|[^{\[&][^&]{0,511}?\.\d{9,}\.")
"""How `TIME.BODY` and `ID.TIME.BODY` begin; JSON and real forms never do."""


class Scheme(StrEnum):
    """Signature schemes, strongest first: if a call has several, the strongest decides."""

    STANDARD = "standard"
    SVIX = "svix"
    V2 = "v2"
    GITHUB = "github"
    LEGACY = "legacy"
    GITLAB = "gitlab"


BODY_ONLY = frozenset({Scheme.GITHUB, Scheme.LEGACY})
"""These sign neither a time nor an id, so equal bodies look like a replay."""


class Proof(Struct, frozen=True):
    """`id` is the delivery id if it is signed; `digest` is empty if nothing is signed.

    `digest` depends on the signed bytes, not the scheme: the same signature is valid in GitHub's
    and the legacy header and must not be accepted once under each.
    """

    scheme: Scheme
    id: str = ""
    digest: str = ""


class _SignedCall(Struct, frozen=True):
    secret: str
    headers: Mapping[str, str]
    body: bytes
    now: float

    def header(self, name: str) -> str:
        return self.headers.get(name, "").strip()


_HEADERS = {
    Scheme.STANDARD: "webhook-signature",
    Scheme.SVIX: "svix-signature",
    Scheme.V2: "x-webhook-signature-v2",
    Scheme.GITHUB: "x-hub-signature-256",
    Scheme.LEGACY: "x-webhook-signature",
    Scheme.GITLAB: "x-gitlab-token",
}


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, now: datetime, only: Scheme | None = None
) -> Proof:
    """Raises `CallRejected` unless the caller knows the secret.

    `only` is the required scheme; without it, the strongest one present decides alone.
    """
    present = (scheme for scheme in Scheme if _HEADERS[scheme] in headers)
    scheme = next((scheme for scheme in present if only in {None, scheme}), None)
    if scheme is None:
        reason = f"This route requires the header {_HEADERS[only]}." if only else _UNSIGNED
        raise CallRejected(401, "signature", reason)
    if scheme is not Scheme.GITLAB and _PREFIXED.match(body.lstrip()):
        raise CallRejected(401, "signature", "The body begins like a signed time or id.")
    return _CHECKS[scheme](_SignedCall(secret, headers, body, now.timestamp()), scheme)


def signature_header(scheme: Scheme) -> str:
    """The header that holds the signature of a call."""
    return _HEADERS[scheme]


def sign(
    secret: str, delivery: str, now: datetime, body: bytes, scheme: Scheme = Scheme.STANDARD
) -> dict[str, str]:
    """Return the headers of a signed call, as `hermes webhook test` sends it."""
    stamp = str(int(now.timestamp()))
    match scheme:
        case Scheme.STANDARD | Scheme.SVIX:
            (key, *_) = _standard_keys(secret)
            prefix = _HEADERS[scheme].partition("-")[0]
            headers = {f"{prefix}-id": delivery, f"{prefix}-timestamp": stamp}
            return {**headers, _HEADERS[scheme]: "v1," + _standard(key, delivery, stamp, body)}
        case Scheme.V2:
            signature = _hex(secret, stamp.encode() + b"." + body)
            headers = {"x-request-id": delivery, "x-webhook-timestamp": stamp}
            return {**headers, _HEADERS[scheme]: signature}
        case Scheme.GITHUB:
            signature = "sha256=" + _hex(secret, body)
            return {"x-github-delivery": delivery, _HEADERS[scheme]: signature}
        case Scheme.LEGACY:
            return {"x-request-id": delivery, _HEADERS[scheme]: _hex(secret, body)}
        case Scheme.GITLAB:
            return {"idempotency-key": delivery, _HEADERS[scheme]: secret}
        case _:
            assert_never(scheme)


def _check_standard(call: _SignedCall, scheme: Scheme) -> Proof:
    prefix = _HEADERS[scheme].partition("-")[0]
    delivery, stamp = call.header(f"{prefix}-id"), call.header(f"{prefix}-timestamp")
    if not delivery or not stamp:
        raise CallRejected(401, "signature", f"{prefix}-id and {prefix}-timestamp are required.")
    signatures = call.header(f"{prefix}-signature").split(" ")[:_MOST_SIGNATURES]
    good = False
    for key in _standard_keys(call.secret):
        expected = "v1," + _standard(key, delivery, stamp, call.body)
        for signature in signatures:
            good |= _same(expected, signature)
    _require(good)
    _require_fresh(stamp, call.now)
    return Proof(scheme, delivery, _digest(delivery.encode(errors="surrogateescape")))


def _check_v2(call: _SignedCall, scheme: Scheme) -> Proof:
    stamp = call.header("x-webhook-timestamp")
    if not stamp:
        raise CallRejected(401, "signature", "X-Webhook-Timestamp is required.")
    signed = stamp.encode(errors="surrogateescape") + b"." + call.body
    _require_hex(call, scheme, signed)
    _require_fresh(stamp, call.now)
    return Proof(scheme, digest=_digest(signed))


def _check_github(call: _SignedCall, scheme: Scheme) -> Proof:
    received = call.header(_HEADERS[scheme])
    _require(_same("sha256=" + _hex(call.secret, call.body), received))
    return Proof(scheme, digest=_digest(call.body))


def _check_legacy(call: _SignedCall, scheme: Scheme) -> Proof:
    _require_hex(call, scheme, call.body)
    return Proof(scheme, digest=_digest(call.body))


def _check_gitlab(call: _SignedCall, scheme: Scheme) -> Proof:
    _require(_same(call.secret, call.headers[_HEADERS[scheme]]))
    return Proof(scheme)


_CHECKS: Mapping[Scheme, Callable[[_SignedCall, Scheme], Proof]] = {
    Scheme.STANDARD: _check_standard,
    Scheme.SVIX: _check_standard,
    Scheme.V2: _check_v2,
    Scheme.GITHUB: _check_github,
    Scheme.LEGACY: _check_legacy,
    Scheme.GITLAB: _check_gitlab,
}


def _standard(key: bytes, delivery: str, stamp: str, body: bytes) -> str:
    signed = f"{delivery}.{stamp}.".encode(errors="surrogateescape") + body
    return b64encode(hmac.digest(key, signed, "sha256")).decode()


def _standard_keys(secret: str) -> tuple[bytes, ...]:
    """Secrets of this scheme are base64; without the marker, both readings are tried."""
    plain = secret.encode()
    try:
        decoded = b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return (plain,)
    if secret.startswith(_PREFIX):
        return (decoded,) if decoded else (plain,)
    return (plain, decoded) if decoded else (plain,)


def _require_hex(call: _SignedCall, scheme: Scheme, signed: bytes) -> None:
    received = call.header(_HEADERS[scheme]).removeprefix("sha256=")
    _require(_same(_hex(call.secret, signed), received))


def _hex(secret: str, signed: bytes) -> str:
    return hmac.digest(secret.encode(), signed, "sha256").hex()


def _same(expected: str, received: str) -> bool:
    """Compare as text, so that no alternative spelling of a signature is accepted."""
    return hmac.compare_digest(expected.encode(), received.encode(errors="surrogateescape"))


def _require(good: bool) -> None:
    if not good:
        raise CallRejected(
            401, "signature", "The signature does not match the body and the secret."
        )


def _require_fresh(stamp: str, now: float) -> None:
    plain = stamp.isascii() and stamp.isdecimal() and len(stamp) <= 12
    if not plain or abs(now - int(stamp)) > TOLERANCE:
        raise CallRejected(
            401, "stale", f"The signed time differs from ours by more than {TOLERANCE} seconds."
        )


def _digest(signed: bytes) -> str:
    return sha256(signed).hexdigest()
