import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.kit.redact import MASK, Redactor
from support.cases import cases
from support.examples import at_most

alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
tokens = st.text(alphabet, min_size=40, max_size=60)
passwords = st.text(st.characters(exclude_categories=["Cs"]), min_size=6, max_size=24)
prose = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)

FORMS = {
    "raw": lambda secret: secret,
    "url": lambda secret: quote(secret, safe=""),
    "url path": quote,
    "form": quote_plus,
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json unicode": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "hex": lambda secret: secret.encode().hex(),
    "HEX": lambda secret: secret.encode().hex().upper(),
}

SHAPES = [
    "sk-{}",
    "sk-ant-api03-{}",
    "sk-proj-{}",
    "sk_live_{}",
    "ghp_{}",
    "github_pat_{}",
    "glpat-{}",
    "xoxb-{}",
    "xapp-1-{}",
    "AIza{}",
    "ya29.{}",
    "hf_{}",
    "gsk_{}",
    "xai-{}",
    "nvapi-{}",
    "tvly-{}",
    "npm_{}",
    "eyJhbGciOiJIUzI1NiJ9.{}.c2ln",
    "123456789:AA{}",
    "Bearer {}",
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    '"Authorization": "{}"',
    "postgres://user:{}@db/x",
    "https://x.example/a?api_key={}&b=c",
    "https://x.example/a?b=c&password={}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n{}",
]


@pytest.mark.parametrize("form", FORMS)
@given(secret=passwords, before=prose, after=prose)
@at_most(50)
def test_known_value_is_masked_in_every_encoding(form, secret, before, after):
    encoded = FORMS[form](secret)
    if secret in MASK or encoded in before + after:
        return
    text = Redactor([secret]).redact(f"{before}\n{encoded}\n{after}")
    assert encoded not in text
    assert MASK in text


@given(
    secret=st.text(alphabet, min_size=12, max_size=40),
    before=st.binary(max_size=8),
    after=st.binary(max_size=8),
)
def test_known_value_is_masked_inside_base64(secret, before, after):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = Redactor([secret]).redact(encode(before + secret.encode() + after).decode())
        assert MASK in text
        assert len(text) <= len(MASK) + 4 * (len(before) + len(after) + 6) // 3 + 8


@pytest.mark.parametrize("shape", SHAPES)
@given(token=tokens)
@at_most(15)
def test_well_known_token_format_is_masked(shape, token):
    text = Redactor().redact(f"before {shape.format(token)} after")
    assert token not in text
    assert text.startswith("before ")


@pytest.mark.parametrize("shape", SHAPES)
@given(token=tokens)
@at_most(15)
def test_masking_is_idempotent(shape, token):
    redactor = Redactor([token[:10]])
    once = redactor.redact(shape.format(token))
    assert redactor.redact(once) == once


@cases(
    "text",
    [
        "",
        "the task-management of a disk-based risk-assessment-framework",
        "Basic information about bearer bonds and authorization in general",
        "https://example.com/path?page=2&keyword=x#part",
        "mailto:somebody@example.com and 12:30@noon",
        "password = os.environ['DB_PASSWORD']",
        "eyJ is how JSON begins in base64",
        "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
        "skeleton sk-short xoxo",
    ],
)
def test_ordinary_text_is_unchanged(text):
    assert Redactor(["unrelated-secret"]).redact(text) == text


def test_longest_matching_value_is_masked():
    redactor = Redactor(["abcdef", "abcdefghij"])
    assert redactor.redact("x abcdefghij y abcdef z") == f"x {MASK} y {MASK} z"


def test_short_value_is_not_masked():
    assert Redactor(["cat", ""]).redact("concatenate") == "concatenate"


def test_repr_hides_the_secrets():
    assert "hunter22" not in repr(Redactor(["hunter22"]))
