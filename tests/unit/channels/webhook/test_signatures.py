"""Only a sender that knows the secret can sign, and only signed content is trusted."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.channels.http_calls import CallRejected
from hermes.channels.webhook.signatures import TOLERANCE, Proof, Scheme, sign, verify
from support.cases import cases

SECRET = "sixteen-chars-at-least"
BODY = b'{"a":1}'
STAMP = 1614265330
NOW = datetime.fromtimestamp(STAMP, UTC)
SIGNATURES = {
    Scheme.STANDARD: "webhook-signature",
    Scheme.SVIX: "svix-signature",
    Scheme.V2: "x-webhook-signature-v2",
    Scheme.GITHUB: "x-hub-signature-256",
    Scheme.LEGACY: "x-webhook-signature",
    Scheme.GITLAB: "x-gitlab-token",
}
TIMED = (Scheme.STANDARD, Scheme.SVIX, Scheme.V2)
VECTORS: list[tuple[str, dict[str, str], bytes]] = [
    (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        {
            "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
    ),
    (
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        {
            "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "svix-timestamp": "1614265330",
            "svix-signature": "v1,AAAA v1a,xyz v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        },
        b'{"test": 2432232314}',
    ),
    (
        "It's a Secret to Everybody",
        {
            "x-hub-signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
    ),
    (
        SECRET,
        {
            "x-webhook-timestamp": "1614265330",
            "x-webhook-signature-v2": "d19336719d5242b3a33fefd3bef05ac6"
            "194641201efd7402488a17b6034c1af3",
        },
        BODY,
    ),
    (
        SECRET,
        {"x-webhook-signature": "789ac680aff5f71af0d3042f4250f521df814c79a4739fa9b41a07e33d325471"},
        BODY,
    ),
    (
        SECRET,
        {
            "x-webhook-signature": "sha256=789ac680aff5f71af0d3042f4250f521"
            "df814c79a4739fa9b41a07e33d325471"
        },
        BODY,
    ),
    (SECRET, {"x-gitlab-token": SECRET}, BODY),
]


def refused(
    headers: Mapping[str, str], body: bytes = BODY, secret: str = SECRET, now: datetime = NOW
) -> str:
    with pytest.raises(CallRejected) as caught:
        verify(secret, headers, body, now)
    assert caught.value.status == 401
    return caught.value.code


def flipped_bits(text: bytes) -> list[bytes]:
    return [
        text[:index] + bytes([text[index] ^ 1 << bit]) + text[index + 1 :]
        for index in range(len(text))
        for bit in range(8)
    ]


@cases(("secret", "headers", "body"), VECTORS)
def test_published_test_vectors(secret: str, headers: dict[str, str], body: bytes) -> None:
    proof = verify(secret, headers, body, NOW)
    assert headers[SIGNATURES[proof.scheme]]
    assert refused(headers, body, secret + "x") == "signature"


@cases("scheme", Scheme)
def test_own_signatures_are_valid(scheme: Scheme) -> None:
    for secret in (SECRET, "whsec_c2l4dGVlbi1jaGFycy1hdC1sZWFzdA==", "ab" * 32, "whsec_", "ümläut"):
        assert verify(secret, sign(secret, "d-1", NOW, BODY, scheme), BODY, NOW).scheme is scheme


@cases("scheme", [one for one in Scheme if one is not Scheme.GITLAB])
def test_changed_body_is_refused(scheme: Scheme) -> None:
    headers = sign(SECRET, "d-1", NOW, BODY, scheme)
    for body in (*flipped_bits(BODY), BODY + b" ", BODY[:-1], b""):
        assert refused(headers, body) == "signature"


@cases("scheme", Scheme)
def test_changed_signature_is_refused(scheme: Scheme) -> None:
    headers = sign(SECRET, "d-1", NOW, BODY, scheme)
    name = SIGNATURES[scheme]
    genuine = headers[name].encode()
    for changed in (*flipped_bits(genuine), genuine[:-1], genuine + b"0", b"", genuine.upper()):
        text = changed.decode(errors="surrogateescape")
        assert refused(headers | {name: text}) == "signature"


@pytest.mark.parametrize("scheme", TIMED)
def test_changed_time_or_id_is_refused(scheme: Scheme) -> None:
    headers = sign(SECRET, "delivery", NOW, BODY, scheme)
    names = [name for name in headers if name.endswith("timestamp")]
    names += [name for name in headers if name in {"webhook-id", "svix-id"}]
    for name in names:
        for changed in flipped_bits(headers[name].encode()):
            text = changed.decode(errors="surrogateescape")
            assert refused(headers | {name: text}) == "signature"
        assert refused(headers | {name: ""}) == "signature"
        assert refused({one: text for one, text in headers.items() if one != name}) == "signature"


@cases("scheme", TIMED)
@cases("sign_of", [1, -1])
def test_clock_may_differ_by_five_minutes(scheme: Scheme, sign_of: int) -> None:
    headers = sign(SECRET, "d-1", NOW, BODY, scheme)
    edge = timedelta(seconds=TOLERANCE * sign_of)
    verify(SECRET, headers, BODY, NOW + edge)
    assert refused(headers, now=NOW + edge + timedelta(seconds=sign_of)) == "stale"
    assert refused(headers, now=NOW + timedelta(hours=sign_of)) == "stale"


@cases("stamp", ["1e9", "-5", "٣", "9" * 13, "soon", "1614265330.0"])
def test_signed_time_must_be_a_plain_number(stamp: str) -> None:
    signature = hmac.new(SECRET.encode(), f"{stamp}.".encode() + BODY, hashlib.sha256).hexdigest()
    headers = {"x-webhook-timestamp": stamp, "x-webhook-signature-v2": signature}
    assert refused(headers) == "stale"


def test_unsigned_call_is_refused() -> None:
    assert refused({}) == "signature"
    assert refused({"authorization": f"Bearer {SECRET}"}) == "signature"


def test_strongest_signature_decides() -> None:
    every: dict[str, str] = {}
    for scheme in reversed(Scheme):
        every |= sign(SECRET, "d-1", NOW, BODY, scheme)
    assert verify(SECRET, every, BODY, NOW).scheme is Scheme.STANDARD
    assert refused(every | {"webhook-signature": "v1,AAAA"}) == "signature"
    assert refused(every, now=NOW + timedelta(hours=1)) == "stale"


def test_route_can_require_a_scheme() -> None:
    both = sign(SECRET, "d-1", NOW, BODY, Scheme.V2) | sign(SECRET, "d", NOW, BODY, Scheme.LEGACY)
    assert verify(SECRET, both, BODY, NOW, Scheme.V2).scheme is Scheme.V2
    legacy = sign(SECRET, "d-1", NOW, BODY, Scheme.LEGACY)
    with pytest.raises(CallRejected, match="x-webhook-signature-v2"):
        verify(SECRET, legacy, BODY, NOW, Scheme.V2)


def as_legacy(headers: Mapping[str, str], scheme: Scheme) -> str:
    """The same signature in the header of the body-only scheme."""
    signature = headers[SIGNATURES[scheme]]
    if scheme is Scheme.V2:
        return signature
    return base64.b64decode(signature.removeprefix("v1,")).hex()


@cases("scheme", TIMED)
@cases("delivery", ["msg_p5jXN8AQ", "17", "a.b.c", "x=y", "two words"])
def test_signed_content_is_not_accepted_as_body_of_another_scheme(
    scheme: Scheme, delivery: str
) -> None:
    body = b"a=1&b=2"
    headers = sign(SECRET, delivery, NOW, body, scheme)
    before = f"{STAMP}." if scheme is Scheme.V2 else f"{delivery}.{STAMP}."
    whole = before.encode() + body
    tomorrow = NOW + timedelta(days=1)
    signature = as_legacy(headers, scheme)
    for forged in (
        {"x-webhook-signature": signature},
        {"x-webhook-signature": "sha256=" + signature},
        {"x-hub-signature-256": "sha256=" + signature},
    ):
        assert refused(forged, whole, now=tomorrow) == "signature"
        assert refused(forged, whole, now=NOW) == "signature"


def test_id_is_not_accepted_as_time() -> None:
    """Signed as a numeric id, a time and a body; sent as a time and a longer body."""
    later = NOW + timedelta(days=1)
    delivery = str(int(later.timestamp()))
    headers = sign(SECRET, delivery, NOW, b"a=1", Scheme.STANDARD)
    forged = {
        "x-webhook-timestamp": delivery,
        "x-webhook-signature-v2": as_legacy(headers, Scheme.STANDARD),
    }
    assert refused(forged, f"{STAMP}.a=1".encode(), now=later) == "signature"


@cases("scheme", [Scheme.GITHUB, Scheme.LEGACY])
@cases(
    "body",
    [
        b'{"v": "x.1614265330.y"}',
        b' \n[1.5, "a.1614265330."]',
        b"items.0.name=x",
        b"ts=1614265330.000100&text=hi",
        b"text=see&link=a.1614265330.html",
    ],
)
def test_bodies_with_numbers_are_accepted(scheme: Scheme, body: bytes) -> None:
    assert verify(SECRET, sign(SECRET, "d", NOW, body, scheme), body, NOW).scheme is scheme


def test_signature_in_two_headers_is_one_call() -> None:
    github = sign(SECRET, "d-1", NOW, BODY, Scheme.GITHUB)
    legacy = {"x-webhook-signature": github["x-hub-signature-256"]}
    assert verify(SECRET, github, BODY, NOW).digest == verify(SECRET, legacy, BODY, NOW).digest


def test_proof_depends_only_on_signed_content() -> None:
    def proof(scheme: Scheme, now: datetime = NOW, **more: str) -> Proof:
        return verify(SECRET, sign(SECRET, "d-1", now, BODY, scheme) | more, BODY, now)

    later = NOW + timedelta(seconds=1)
    assert proof(Scheme.STANDARD).id == "d-1"
    assert proof(Scheme.STANDARD).digest == proof(Scheme.STANDARD, later).digest
    assert proof(Scheme.V2).digest != proof(Scheme.V2, later).digest
    assert proof(Scheme.GITHUB).digest == proof(Scheme.GITHUB, **{"x-github-delivery": "e"}).digest
    assert [proof(one).id for one in Scheme if one not in (Scheme.STANDARD, Scheme.SVIX)] == [
        ""
    ] * 4
    assert proof(Scheme.GITLAB).digest == ""


@given(
    st.sampled_from(list(Scheme)),
    st.dictionaries(st.sampled_from(list(SIGNATURES.values())), st.text(max_size=90)),
    st.binary(max_size=50),
)
def test_random_headers_are_refused(scheme: Scheme, noise: dict[str, str], body: bytes) -> None:
    with pytest.raises(CallRejected):
        verify(SECRET, noise, body, NOW, scheme)
