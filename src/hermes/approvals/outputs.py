"""What small programs print, when everything that they are given is known."""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence

from hermes.approvals.values import UNKNOWN, ansi

Known = str | None
_FORMAT = re.compile(r"%(?:[-+ #0]*\d*(?:\.\d+)?)([sbqdcx%])")


def output_of(argv: Sequence[str], fed: Known) -> Known:
    """None when it cannot be known; `fed` is what comes in."""
    if not argv or any(UNKNOWN in word for word in argv):
        return None
    name = argv[0].rpartition("/")[2]
    maker = _MAKERS.get(name)
    if maker is not None:
        return maker(argv[1:])
    changer = _CHANGERS.get(name)
    if changer is None or fed is None:
        return None
    try:
        return changer(argv[1:], fed)
    except (ValueError, binascii.Error):
        return None


def _echo(args: Sequence[str]) -> Known:
    words, escapes, ends = list(args), False, "\n"
    while words and re.fullmatch(r"-[neE]+", words[0]):
        escapes |= "e" in words[0]
        ends = "" if "n" in words[0] else ends
        words.pop(0)
    text = " ".join(words)
    return (ansi(text) if escapes or "\\" in text else text) + ends


def _printf(args: Sequence[str]) -> Known:
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
            given = rest.pop(0) if rest else ""
            return given[:1] if found[1] == "c" else given

        out.append(_FORMAT.sub(fill, ansi(words[0])))
        if not rest or len(rest) == before or len(out) > 100:
            return "".join(out)


def _nothing(args: Sequence[str]) -> Known:
    return ""


def _base64(args: Sequence[str], fed: str) -> Known:
    if not any(one in {"-d", "-D", "--decode", "-di", "-id"} for one in args):
        return None
    return base64.b64decode("".join(fed.split())).decode("utf-8", "replace")


def _base32(args: Sequence[str], fed: str) -> Known:
    return base64.b32decode("".join(fed.split())).decode("utf-8", "replace")


def _openssl(args: Sequence[str], fed: str) -> Known:
    return _base64(["-d"], fed) if {"-d"} & {*args} and {"base64", "-base64"} & {*args} else None


def _xxd(args: Sequence[str], fed: str) -> Known:
    if "-r" not in "".join(args):
        return None
    return bytes.fromhex("".join(fed.split())).decode("utf-8", "replace")


def _rev(args: Sequence[str], fed: str) -> Known:
    return "\n".join(line[::-1] for line in fed.split("\n"))


def _same(args: Sequence[str], fed: str) -> Known:
    return fed if all(one.startswith("-") for one in args) else None


def _tee(args: Sequence[str], fed: str) -> Known:
    return fed


def _tr(args: Sequence[str], fed: str) -> Known:
    words = [_set(one) for one in args]
    if len(words) == 2 and args[0] == "-d":
        return "".join(one for one in fed if one not in words[1])
    if len(words) != 2 or args[0].startswith("-") or not words[1]:
        return None
    old, new = words
    new += new[-1] * (len(old) - len(new))
    return fed.translate(str.maketrans(old, new[: len(old)]))


def _set(text: str) -> str:
    def ranged(found: re.Match[str]) -> str:
        return "".join(map(chr, range(ord(found[1]), ord(found[2]) + 1)))

    return re.sub(r"(.)-(.)", ranged, ansi(text))


def _sed(args: Sequence[str], fed: str) -> Known:
    words = [one for one in args if not one.startswith("-")]
    found = re.fullmatch(r"s(.)(.*?)\1(.*?)\1(g?)", words[0]) if len(words) == 1 else None
    if found is None:
        return None
    return fed.replace(found[2], found[3], -1 if found[4] else 1)


_MAKERS: Mapping[str, Callable[[Sequence[str]], Known]] = {
    "echo": _echo, "printf": _printf, "true": _nothing, "cd": _nothing, ":": _nothing,
}  # fmt: skip
_CHANGERS: Mapping[str, Callable[[Sequence[str], str], Known]] = {
    "base64": _base64, "base32": _base32, "openssl": _openssl, "xxd": _xxd, "rev": _rev,
    "cat": _same, "sort": _same, "head": _same, "tail": _same, "tee": _tee, "tr": _tr, "sed": _sed,
}  # fmt: skip
