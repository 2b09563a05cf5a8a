"""What a shell makes of the letters of a word, as far as that can be known without running it."""

import re
from collections.abc import Iterator, Mapping

UNKNOWN = "\ufffc"
"""Stands for a piece that only running the command would tell; it may also be nothing."""

MOST_WORDS = 64
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_LETTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "e": "\x1b",
}
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d{1,9}|[A-Za-z])\.\.(-?\d{1,9}|[A-Za-z])")
_PARAMETER = re.compile(
    r"^\$?\{?([A-Za-z_]\w*|[@*#?$!-]|\d+)(?:\[(?P<at>[^\[\]]*)\])?\}?$", re.DOTALL
)
_OPERATION = re.compile(
    r"^\$\{(!?)([A-Za-z_]\w*|[@*]|\d+)(?:\[(?P<at>[^\[\]]*)\])?"
    r"(?P<how>:?[-=+?]|//?|##?|%%?|\^\^?|,,?|:)(?P<rest>.*)\}$",
    re.DOTALL,
)


def listed(names: str) -> frozenset[str]:
    """Names that are written one behind the other."""
    return frozenset(names.split())


def unescaped(text: str) -> str:
    """A bare word without its backslashes."""
    return _ESCAPE.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def unquoted(text: str) -> str:
    """The inside of double quotes."""
    return _IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def ansi(text: str) -> str:
    """The inside of `$'…'`, of `echo -e` and of a format of printf."""

    def letter(found: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
            if found[group]:
                number = int(found[group], base)
                return chr(number) if number < 0x110000 else UNKNOWN
        return _LETTERS.get(found[5], found[5])

    return _ANSI.sub(letter, text)


def braces(word: str, room: int = MOST_WORDS) -> Iterator[str]:
    """`{a,b}c` is two words, and `{a..c}` is three."""
    for found in _BRACES.finditer(word) if "{" in word and room > 1 else ():
        choices = found[1].split(",") if "," in found[1] else _ranged(found[1])
        for one in choices[:room]:
            yield from braces(word[: found.start()] + one + word[found.end() :], room // 2)
        if choices:
            return
    yield word


def _ranged(text: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None or found[1].isalpha() != found[2].isalpha():
        return []
    letters = found[1].isalpha()
    start, end = (ord(found[1]), ord(found[2])) if letters else (int(found[1]), int(found[2]))
    step = 1 if start <= end else -1
    numbers = range(start, end + step, step)[:MOST_WORDS]
    return [chr(one) if letters else str(one) for one in numbers]


def parameter(text: str, known: Mapping[str, str]) -> str:
    """The value of `$X` or `${X…}`; a default counts where X is not known."""
    plain = _PARAMETER.match(text)
    if plain:
        return _value(plain[1], known, plain["at"])
    found = _OPERATION.match(text)
    if found is None:
        return UNKNOWN
    indirect, name = found[1], found[2]
    value = _value(name, known, found["at"])
    if indirect:
        value = _value(value, known)
    return _operated(value, found["how"], found["rest"])


def _value(name: str, known: Mapping[str, str], at: str | None = None) -> str:
    if at not in {None, "@", "*"}:
        return known.get(f"{name}[{at}]", known.get(name, UNKNOWN) if at == "0" else UNKNOWN)
    if name in {"@", "*"} or name.isdecimal():
        return known.get(name, known.get("@", UNKNOWN) if name in {"@", "*"} else UNKNOWN)
    return known.get(name, UNKNOWN)


def _operated(value: str, how: str, rest: str) -> str:
    rest = unescaped(rest).strip("\"'")
    if how in {":-", "-", ":=", "="}:
        return rest if UNKNOWN in value or not value else value
    if how in {":+", "+"}:
        # Where it stands for a place or a flag, it is taken for given.
        doubtful = UNKNOWN in value and not rest.startswith(("/", "-", "~"))
        return UNKNOWN if doubtful else rest
    if how in {":?", "?"}:
        return value
    if UNKNOWN in value:
        return UNKNOWN
    return _cut(value, how, rest)


def _cut(value: str, how: str, rest: str) -> str:
    match how:
        case "/" | "//":
            old, _, new = rest.partition("/")
            return value.replace(old, new, -1 if how == "//" else 1) if old else value
        case "^" | "^^":
            return value.upper()
        case "," | ",,":
            return value.lower()
        case "#" | "##":
            return value.removeprefix(rest)
        case "%" | "%%":
            return value.removesuffix(rest)
        case _:
            return _slice(value, rest)


def _slice(value: str, rest: str) -> str:
    try:
        start, *length = (int(one) for one in rest.split(":"))
    except ValueError:
        return UNKNOWN
    cut = value[start:]
    return cut[: length[0]] if length else cut
