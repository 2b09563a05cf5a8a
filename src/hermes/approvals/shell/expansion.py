"""Expand shell words as far as possible without running anything."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

UNKNOWN = "\ufffc"
"""Stands for text that is only known when the command runs; it may also be empty."""

MAX_BRACE_WORDS = 64
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_IN_QUOTES = re.compile(r'\\([$`"\\\n])')
_ANSI = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_ESCAPE_CODES = dict(zip("ntrabfve", "\n\t\r\a\b\f\v\x1b", strict=True))
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
KnownText = str | None
_FORMAT = re.compile(r"%(?:[-+ #0]*\d*(?:\.\d+)?)([sbqdcx%])")


def word_set(names: str) -> frozenset[str]:
    """Split names that are separated by spaces."""
    return frozenset(names.split())


def unescape(text: str) -> str:
    """Remove the backslashes of an unquoted word."""
    return _ESCAPE.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def unescape_quoted(text: str) -> str:
    """Unescape the inside of double quotes."""
    return _IN_QUOTES.sub(lambda found: "" if found[1] == "\n" else found[1], text)


def decode_escapes(text: str) -> str:
    """Decode the inside of `$'…'`, the argument of `echo -e` or a printf format."""

    def decode(found: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
            if found[group]:
                number = int(found[group], base)
                return chr(number) if number < 0x110000 else UNKNOWN
        return _ESCAPE_CODES.get(found[5], found[5])

    return _ANSI.sub(decode, text)


def expand_braces(word: str, room: int = MAX_BRACE_WORDS) -> Iterator[str]:
    """Expand braces: `{a,b}c` is two words, `{a..c}` is three."""
    for found in _BRACES.finditer(word) if "{" in word and room > 1 else ():
        choices = found[1].split(",") if "," in found[1] else _expand_range(found[1])
        for one in choices[:room]:
            yield from expand_braces(word[: found.start()] + one + word[found.end() :], room // 2)
        if choices:
            return
    yield word


def _expand_range(text: str) -> list[str]:
    found = _RANGE.fullmatch(text)
    if found is None or found[1].isalpha() != found[2].isalpha():
        return []
    letters = found[1].isalpha()
    start, end = (ord(found[1]), ord(found[2])) if letters else (int(found[1]), int(found[2]))
    step = 1 if start <= end else -1
    numbers = range(start, end + step, step)[:MAX_BRACE_WORDS]
    return [chr(one) if letters else str(one) for one in numbers]


def expand_parameter(text: str, known: Mapping[str, str]) -> str:
    """Return the value of `$X` or `${X…}`; a default applies where X is unknown."""
    plain = _PARAMETER.match(text)
    if plain:
        return _variable_value(plain[1], known, plain["at"])
    found = _OPERATION.match(text)
    if found is None:
        return UNKNOWN
    indirect, name = found[1], found[2]
    value = _variable_value(name, known, found["at"])
    if indirect:
        value = _variable_value(value, known)
    return _apply_operator(value, found["how"], found["rest"])


def _variable_value(name: str, known: Mapping[str, str], at: str | None = None) -> str:
    if at not in {None, "@", "*"}:
        return known.get(f"{name}[{at}]", known.get(name, UNKNOWN) if at == "0" else UNKNOWN)
    if name in {"@", "*"} or name.isdecimal():
        return known.get(name, known.get("@", UNKNOWN) if name in {"@", "*"} else UNKNOWN)
    return known.get(name, UNKNOWN)


def _apply_operator(value: str, how: str, rest: str) -> str:
    rest = unescape(rest).strip("\"'")
    if how in {":-", "-", ":=", "="}:
        return rest if UNKNOWN in value or not value else value
    if how in {":+", "+"}:
        # A path or a flag is assumed to be used.
        uncertain = UNKNOWN in value and not rest.startswith(("/", "-", "~"))
        return UNKNOWN if uncertain else rest
    if how in {":?", "?"}:
        return value
    if UNKNOWN in value:
        return UNKNOWN
    return _apply_substitution(value, how, rest)


def _apply_substitution(value: str, how: str, rest: str) -> str:
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
            return _substring(value, rest)


def _substring(value: str, rest: str) -> str:
    try:
        start, *length = (int(one) for one in rest.split(":"))
    except ValueError:
        return UNKNOWN
    cut = value[start:]
    return cut[: length[0]] if length else cut


def predict_output(argv: Sequence[str], fed: KnownText) -> KnownText:
    """Predict what a command prints; None if unknown. `fed` is its standard input."""
    if not argv or any(UNKNOWN in word for word in argv):
        return None
    name = argv[0].rpartition("/")[2]
    generate = _GENERATORS.get(name)
    if generate is not None:
        return generate(argv[1:])
    transform = _FILTERS.get(name)
    if transform is None or fed is None:
        return None
    try:
        return transform(argv[1:], fed)
    except (ValueError, binascii.Error):
        return None


def _echo(args: Sequence[str]) -> KnownText:
    words, escapes, ends = list(args), False, "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        escapes |= "e" in words[0]
        ends = "" if "n" in words[0] else ends
        words.pop(0)
    text = " ".join(words)
    return (decode_escapes(text) if escapes or "\\" in text else text) + ends


def _printf(args: Sequence[str]) -> KnownText:
    words = [one for one in args if one != "--"]
    if not words or words[0] == "-v":
        return None
    rest = words[1:]
    out: list[str] = []
    while True:
        before = len(rest)

        def fill(found: re.Match[str]) -> str:
            if found[1] == "%":
                return "%"
            value = rest.pop(0) if rest else ""
            return value[:1] if found[1] == "c" else value

        out.append(_FORMAT.sub(fill, decode_escapes(words[0])))
        if not rest or len(rest) == before or len(out) > 100:
            return "".join(out)


def _base64(args: Sequence[str], fed: str) -> KnownText:
    if not any(one in {"-d", "-D", "--decode", "-di", "-id"} for one in args):
        return None
    return base64.b64decode("".join(fed.split())).decode("utf-8", "replace")


def _base32(args: Sequence[str], fed: str) -> KnownText:
    return base64.b32decode("".join(fed.split())).decode("utf-8", "replace")


def _openssl(args: Sequence[str], fed: str) -> KnownText:
    return _base64(["-d"], fed) if {"-d"} & {*args} and {"base64", "-base64"} & {*args} else None


def _xxd(args: Sequence[str], fed: str) -> KnownText:
    if "-r" not in "".join(args):
        return None
    return bytes.fromhex("".join(fed.split())).decode("utf-8", "replace")


def _pass_through(args: Sequence[str], fed: str) -> KnownText:
    return fed if all(one.startswith("-") for one in args) else None


def _tr(args: Sequence[str], fed: str) -> KnownText:
    words = [_expand_tr_set(one) for one in args]
    if len(words) == 2 and args[0] == "-d":
        return "".join(one for one in fed if one not in words[1])
    if len(words) != 2 or args[0].startswith("-") or not words[1]:
        return None
    old, new = words
    new += new[-1] * (len(old) - len(new))
    return fed.translate(str.maketrans(old, new[: len(old)]))


def _expand_tr_set(text: str) -> str:
    def ranged(found: re.Match[str]) -> str:
        return "".join(map(chr, range(ord(found[1]), ord(found[2]) + 1)))

    return re.sub(r"(.)-(.)", ranged, decode_escapes(text))


def _sed(args: Sequence[str], fed: str) -> KnownText:
    words = [one for one in args if not one.startswith("-")]
    found = re.fullmatch(r"s(.)(.*?)\1(.*?)\1(g?)", words[0]) if len(words) == 1 else None
    if found is None:
        return None
    return fed.replace(found[2], found[3], -1 if found[4] else 1)


_GENERATORS: Mapping[str, Callable[[Sequence[str]], KnownText]] = {
    "echo": _echo, "printf": _printf, **dict.fromkeys(("true", "cd", ":"), lambda args: ""),
}  # fmt: skip
_FILTERS: Mapping[str, Callable[[Sequence[str], str], KnownText]] = {
    "base64": _base64, "base32": _base32, "openssl": _openssl, "xxd": _xxd,
    "rev": lambda args, fed: "\n".join(line[::-1] for line in fed.split("\n")),
    **dict.fromkeys(("cat", "sort", "head", "tail"), _pass_through),
    "tee": lambda args, fed: fed, "tr": _tr, "sed": _sed,
}  # fmt: skip
