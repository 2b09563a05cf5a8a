"""Mask secrets in text, by known values and by known formats."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import json

MASK = "[redacted]"

MIN_SECRET_LENGTH = 6
"""Shorter secrets are not masked by value: they would garble ordinary words."""

# What must not precede a key, the characters of a key, and the same without - and _.
_B = r"(?<![A-Za-z0-9_\-])"
_T = r"[A-Za-z0-9_\-]"
_W = r"[A-Za-z0-9]"

_PATH = r"A-Za-z0-9_\-/"

_HEADER = (
    r"((?i:authorization)[\"']?\s*[:=]\s*[\"']?(?:(?i:bearer|basic|token|digest)\s+)?)"
    r"[^\s\"',;}]+"
)
_QUERY = (
    r"([?&;](?i:key|sig|auth|[\w.\-]{0,40}?(?:password|passwd|pwd|passphrase|secret|signature"
    r"|credential|token|api[_\-]?key|access[_\-]?key|subscription-key))=)[^\s&#\"'<>]+"
)

_SHAPES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk-",), rf"({_B}sk-){_T}{{16,}}"),
    (("k_live_", "k_test_"), rf"({_B}[sr]k_(?:live|test)_){_W}{{10,}}"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"({_B}gh[pousr]_){_W}{{20,}}"),
    (("github_pat_",), rf"({_B}github_pat_)[A-Za-z0-9_]{{20,}}"),
    (("glpat-",), rf"({_B}glpat-){_T}{{16,}}"),
    (("xox", "xapp-"), rf"({_B}x(?:ox[a-z]|app)-){_T}{{10,}}"),
    (("AIza",), rf"({_B}AIza){_T}{{30,}}"),
    (("ya29.",), rf"({_B}ya29\.)[A-Za-z0-9_\-.]{{20,}}"),
    (("AKIA", "ASIA"), rf"({_B}A[KS]IA)[A-Z0-9]{{16}}(?!{_W})"),
    (("hf_",), rf"({_B}hf_){_W}{{20,}}"),
    (("gsk_",), rf"({_B}gsk_){_W}{{20,}}"),
    (("xai-",), rf"({_B}xai-){_W}{{20,}}"),
    (("nvapi-",), rf"({_B}nvapi-){_T}{{20,}}"),
    (("tvly-",), rf"({_B}tvly-){_T}{{16,}}"),
    (("npm_",), rf"({_B}npm_){_W}{{30,}}"),
    (("SG.",), rf"({_B}SG\.){_T}{{16,}}+\.{_T}{{16,}}"),
    (("eyJ",), rf"({_B}eyJ){_T}{{8,}}+\.{_T}{{8,}}(?:\.{_T}*)?"),
    ((":AA",), rf"((?<!\d)\d{{6,12}}:)AA{_T}{{30,}}"),
    (("://",), r"(://[^\s:/@?#]*+:)[^\s@/?#]++(?=@)"),
    (("://",), r"(\bhttps?://)(?!\[redacted\])[^\s:/@?#]{8,}+(?=@)"),
    (("hooks.slack.com/",), rf"(hooks\.slack\.com/\w+/)[{_PATH}]{{16,}}"),
    (("/api/webhooks/",), rf"(/api/webhooks/\d+/){_T}{{16,}}"),
    (("uthorization", "UTHORIZATION"), _HEADER),
    (("earer ", "EARER "), r"(\b(?:[Bb]earer|BEARER) +)[A-Za-z0-9_\-.~+/]{16,}=*"),
    (("?", "&"), _QUERY),
    (
        ("PRIVATE KEY-----",),
        r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^-]*+(?:(?!-----END )-[^-]*+)*+",
    ),
)


class Redactor:
    """Masks known values, plain or encoded (URL, JSON, hex, base64), and known key formats.

    Each form and each shape's mark is searched as a plain substring first, so that a long text
    without secrets costs little; patterns are compiled when first needed.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        kept = {
            secret for secret in secrets if len(secret) >= MIN_SECRET_LENGTH and secret not in MASK
        }
        kept |= {line for secret in kept if "\n" in secret for line in _lines(secret)}
        forms = {form for secret in kept for form in _encoded_forms(secret)}
        self._forms = sorted(sorted(forms), key=len, reverse=True)

    def redact_values(self, text: str) -> str:
        """Mask only known values, for text that must otherwise stay exact, such as code."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return text

    def redact(self, text: str) -> str:
        text = self.redact_values(text)
        for marks, pattern in _SHAPES:
            if any(mark in text for mark in marks):
                text = re.sub(pattern, rf"\1{MASK}", text, flags=re.DOTALL)
        return text

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"


def _lines(secret: str) -> list[str]:
    """The lines of a secret, without PEM header and footer."""
    lines = [line.strip() for line in secret.split("\n")]
    return [line for line in lines if len(line) >= 16 and not line.startswith("-----")]


_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def _encoded_forms(secret: str) -> Iterator[str]:
    """The secret as it is, and encoded for URLs, JSON, hex and base64."""
    data = secret.encode(errors="surrogatepass")
    percent = "".join(chr(b) if chr(b) in _UNRESERVED else f"%{b:02X}" for b in data)
    yield from (secret, percent, percent.replace("%2F", "/"), percent.replace("%20", "+"))
    if "%" in percent:
        yield re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), percent)
    with suppress(UnicodeEncodeError):
        escaped = json.encode(secret).decode()[1:-1]
        yield from (escaped, escaped.replace("/", "\\/"))
        yield "".join(c if " " <= c <= "~" else _escape(c) for c in escaped)
    yield from (data.hex(), data.hex().upper())
    # The base64 parts that do not depend on the offset of the secret in a longer text.
    for before in range(3):
        encoded = b64encode(bytes(before) + data).decode()
        core = encoded[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
        yield from (core, core.replace("+", "-").replace("/", "_"))


def _escape(character: str) -> str:
    """The JSON escape; a surrogate pair above U+FFFF."""
    code = character.encode("utf-16-be", errors="surrogatepass").hex()
    return "".join(f"\\u{code[i : i + 4]}" for i in range(0, len(code), 4))
