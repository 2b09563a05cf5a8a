"""Stored text made safe to look at: nothing in it can move a cursor, hide words or turn them."""

import re
import unicodedata

from hermes.kit.text import one_line

_ELLIPSIS = "…"

_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_REPLACED = dict.fromkeys(
    [*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)],
    0xFFFD,
)
_LINE_ENDS = {0x2028: 0x0A, 0x2029: 0x0A}
_HARMLESS = {**_PICTURES, 0x7F: 0x2421, **_REPLACED, **_LINE_ENDS}
"""Control characters become their pictures; direction overrides and lone surrogates a mark."""


def harmless(text: str) -> str:
    """The text with its lines and tabs, and without the power of its control characters."""
    return text.replace("\r\n", "\n").translate(_HARMLESS)


_SEEN = re.compile(r"[\x20-\x7e\n\t]*")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that look like nothing."""
_GAP = re.compile(r" {40,}|\t{8,}|\n(?:[ \t]*\n){4,}")


def visible(text: str) -> str:
    """The text with everything in it that cannot be seen written out, and wide gaps named.

    For what a person decides about: done twice, it gives the same.
    """
    if not _SEEN.fullmatch(text):
        pairs = zip(" " + text, text, strict=False)
        text = "".join(one if _is_seen(one, before) else _named(one) for before, one in pairs)
    return _GAP.sub(_gap, text)


def visible_line(text: str, width: int) -> str:
    """The same as one line of at most `width` letters, which can begin or end no block."""
    line = visible(" ".join(text.split())).replace("`", "'")
    return line if len(line) <= width else line[: width - 1] + _ELLIPSIS


def _is_seen(one: str, before: str) -> bool:
    if one in " \n\t":
        return True
    if one == "\ufe0f":
        # It only makes a picture of the sign before it.
        return unicodedata.category(before) == "So"
    return unicodedata.category(one) not in _UNSEEN and not _BLANK.match(one)


def _named(one: str) -> str:
    return f"⟦U+{ord(one):04X}⟧"


def _gap(found: re.Match[str]) -> str:
    gap = found[0]
    match gap[0]:
        case "\n":
            return f"\n⟦{gap.count(chr(10)) - 1} empty lines⟧\n"
        case "\t":
            return f"⟦{len(gap)} tabs⟧"
        case _:
            return f"⟦{len(gap)} spaces⟧"


def flat(text: str) -> str:
    """The same on one line, with single spaces."""
    return harmless(" ".join(text.split()))


def headline(text: str, width: int) -> str:
    """The first sentence of what came in: the rest is for the model, and the answer tells of it."""
    first, end, _ = flat(text).removeprefix("[").removeprefix("IMPORTANT: ").partition(". ")
    return one_line(first.rstrip("]") + end.strip(), width)


def width_of(text: str) -> int:
    """How many columns a terminal gives to a line."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def fit(text: str, width: int) -> str:
    """At most `width` columns; what does not fit ends in an ellipsis."""
    if width_of(text) <= width:
        return text
    room = width - 1
    kept: list[str] = []
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return ("".join(kept).rstrip() + _ELLIPSIS) if width > 0 else ""


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Filled up with spaces to `width` columns."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
