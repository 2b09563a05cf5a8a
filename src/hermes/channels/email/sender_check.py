"""Verify the sender of a mail by the receiving server's authentication results (RFC 8601)."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

# The header may have any size and content, so every pattern must run in linear time.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_TEXT = re.compile(rf'{_QUOTED.pattern}|[^"();]+|[();"]')
_IN_COMMENT = re.compile(r"[^()\\]+|\\.?|[()]")
_WORD = re.compile(rf'(?:{_QUOTED.pattern}|[^\s"])+')
_KEY = re.compile(r"[a-z0-9._/-]+")
_DOMAIN = re.compile(r"[\w-]+(\.[\w-]+)+")
_DOMAINS = {"dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom",), "dmarc": ("header.from",)}


class AuthenticationMethod(Struct, frozen=True):
    """The result of one method, such as `dkim`, and the domains it is about."""

    name: str
    result: str
    domains: tuple[str, ...]


class AuthenticationResults(Struct, frozen=True):
    """One header, written by the server `authserv_id`."""

    authserv_id: str
    methods: tuple[AuthenticationMethod, ...]


def parse_results(header: str) -> AuthenticationResults:
    """Parse a header; one with an unclosed quotation or comment contains no results."""
    server, *entries = [*_entries(" ".join(header.split())), ""]
    words = server.split()
    methods = [_method(_pairs(entry)) for entry in entries]
    return AuthenticationResults(
        words[0].strip('"').lower() if words else "", tuple(method for method in methods if method)
    )


def problem_with_sender(sender: str, headers: Sequence[str], authserv_id: str) -> str:
    """Return why the address in `From` cannot be trusted; empty if it can.

    Only the topmost header counts: the receiving server adds it above whatever the mail had. A
    server that adds none leaves the sender's own at the top, so `authserv_id` is required.
    """
    if not headers:
        return "the server did not add Authentication-Results"
    results = parse_results(headers[0])
    if not authserv_id:
        return (
            f"EMAIL_AUTHSERV_ID is not set (the topmost results are from {results.authserv_id!r})"
        )
    if results.authserv_id != authserv_id.lower():
        return f"the topmost Authentication-Results are from {results.authserv_id!r}"
    domain = domain_of(sender)
    if any(method.name == "dmarc" and method.result == "fail" for method in results.methods):
        return "DMARC failed"
    if any(_proves(method, domain) for method in results.methods):
        return ""
    return "neither DKIM, SPF nor DMARC passed for its domain"


def domain_of(address: str) -> str:
    return address.rpartition("@")[2].strip("<>. ").lower()


def _proves(method: AuthenticationMethod, domain: str) -> bool:
    return method.result == "pass" and any(_covers(proved, domain) for proved in method.domains)


def _covers(proved: str, domain: str) -> bool:
    """Whether the domain is the verified one or one of its subdomains, but not a parent domain."""
    return domain == proved or domain.endswith(f".{proved}")


def _entries(text: str) -> list[str]:
    """Split at semicolons and remove comments; return nothing if a comment is not closed."""
    entries: list[list[str]] = [[]]
    depth = place = 0
    while found := (_IN_COMMENT if depth else _TEXT).match(text, place):
        part, place = found[0], found.end()
        if part == "(":
            depth += 1
        elif depth:
            depth -= part == ")"
            entries[-1].append(" ")
        elif part in {")", '"'}:
            return []
        elif part == ";":
            entries.append([])
        else:
            entries[-1].append(part)
    return [] if depth else ["".join(entry).strip() for entry in entries]


def _pairs(entry: str) -> list[tuple[str, str]]:
    """Return the pairs `key=value`; there may be spaces around the equals sign."""
    words: list[str] = []
    for found in _WORD.finditer(entry):
        word = found[0]
        last = words[-1] if words else "="
        if (word.startswith("=") and "=" not in last) or last.find("=") == len(last) - 1 > 0:
            words[-1] += word
        else:
            words.append(word)
    parted = [word.partition("=") for word in words]
    return [(key.lower(), value.lower()) for key, equals, value in parted if equals]


def _method(pairs: Sequence[tuple[str, str]]) -> AuthenticationMethod | None:
    if not pairs or not _KEY.fullmatch(pairs[0][0]):
        return None
    name = pairs[0][0].partition("/")[0]
    wanted = [(key, value) for key, value in pairs[1:] if key in _DOMAINS.get(name, ())]
    return AuthenticationMethod(name, pairs[0][1].strip('"'), tuple(_domains(wanted)))


def _domains(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Return the domains; a property given twice may have been injected and is ignored."""
    pairs = list(properties)
    times = Counter(key for key, _ in pairs)
    found = [_domain(value) for key, value in pairs if times[key] == 1]
    return [domain for domain in found if _DOMAIN.fullmatch(domain)]


def _domain(value: str) -> str:
    """Return the domain of a value such as `a.example`, `"a.example"` or `"local part"@a.example`.

    A quotation before the domain is a local part, which the sender chooses.
    """
    if _QUOTED.fullmatch(value):
        return "" if "@" in value else value.strip('"')
    return domain_of(_QUOTED.sub("", value))
