"""Make text safe to display: no control characters, hidden characters or direction changes."""

import re
import unicodedata
from collections.abc import Iterator

from hermes.kit.text import one_line

_ELLIPSIS = "…"

_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_REPLACED = dict.fromkeys(
    [*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)],
    0xFFFD,
)
_LINE_ENDS = {0x2028: 0x0A, 0x2029: 0x0A}
_ESCAPES = {**_PICTURES, 0x7F: 0x2421, **_REPLACED, **_LINE_ENDS}
"""Control characters become symbols; direction overrides and lone surrogates a mark."""


def escape_controls(text: str) -> str:
    """Replace control characters except line feeds and tabs."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


_SEEN = re.compile(r"[\x20-\x7e\n\t]*")
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that are invisible."""
_STACK = 4
"""Combining marks per letter that languages need; more cover other lines."""
_GAP = re.compile(r" {40,}|\t{8,}|\n(?:[ \t]*\n){4,}")


def show_invisible(text: str) -> str:
    """Spell out invisible characters and wide gaps in text that a person must judge.

    Applying it twice changes nothing more.
    """
    if not _SEEN.fullmatch(text):
        text = "".join(_written_out(text))
    return _GAP.sub(_gap, text)


_WORD = re.compile(
    "(?:[^\\W_]|[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f])+"
)
_ADDRESS = re.compile(r"\S+")
_IN_ADDRESSES = re.compile(r"[./:@].")
_DISTINCT_SCRIPTS = frozenset({
    "ARABIC", "BENGALI", "BOPOMOFO", "CJK", "DEVANAGARI", "ETHIOPIC", "GUJARATI", "GURMUKHI",
    "HALFWIDTH", "HANGUL", "HEBREW", "HIRAGANA", "IDEOGRAPHIC", "KANNADA", "KATAKANA",
    "KATAKANA-HIRAGANA", "KHMER", "LAO", "MALAYALAM", "MICRO", "MYANMAR", "SINHALA", "TAMIL",
    "TELUGU", "THAI", "TIBETAN",
})  # fmt: skip
"""Scripts that cannot be confused with Latin and are often mixed with it."""


def show_lookalikes(text: str, *, addresses: bool = False) -> str:
    """Like `show_invisible`, and also write out letters that imitate another script.

    In a word that mixes scripts, these are the letters of the rarer scripts. Meant for commands,
    paths and hosts; with `addresses`, only addresses within the text are changed.
    """
    text = show_invisible(text)
    if text.isascii():
        return text
    if addresses:
        return _ADDRESS.sub(_unmixed_address, text)
    return _WORD.sub(_unmixed, text)


def _unmixed_address(found: re.Match[str]) -> str:
    return _WORD.sub(_unmixed, found[0]) if _IN_ADDRESSES.search(found[0]) else found[0]


def _unmixed(found: re.Match[str]) -> str:
    word = found[0]
    if word.isascii():
        return word
    scripts = [_script(char) for char in word]
    there = {script for script in scripts if script}
    if len(there) < 2:
        return word
    most = max(sorted(there), key=lambda one: (scripts.count(one), one == "LATIN"))
    pairs = zip(word, scripts, strict=True)
    return "".join(one if script in {"", most} else _named(one) for one, script in pairs)


def _script(one: str) -> str:
    """The script by the first word of the character's name, or an empty string."""
    if unicodedata.category(one)[0] != "L":
        return ""
    name = unicodedata.name(one, "").partition(" ")[0]
    return "" if name in _DISTINCT_SCRIPTS else name


def show_invisible_line(text: str, width: int) -> str:
    """One line of at most `width` characters that cannot open or close a code block."""
    line = show_invisible(" ".join(text.split())).replace("`", "'")
    return line if len(line) <= width else line[: width - 1] + _ELLIPSIS


def _written_out(text: str) -> Iterator[str]:
    before, stacked = " ", 0
    for char in text:
        stacked = stacked + 1 if unicodedata.category(char) in {"Mn", "Me"} else 0
        yield char if stacked <= _STACK and _is_seen(char, before) else _named(char)
        before = char


def _is_seen(one: str, before: str) -> bool:
    if one in " \n\t":
        return True
    if one == "\ufe0f":
        # It only selects the emoji form of the previous character.
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


def single_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return escape_controls(" ".join(text.split()))


def headline(text: str, width: int) -> str:
    """The first sentence of an incoming report."""
    first, end, _ = single_line(text).removeprefix("[").removeprefix("IMPORTANT: ").partition(". ")
    return one_line(first.rstrip("]") + end.strip(), width)


def display_width(text: str) -> int:
    """Width of a line in terminal columns."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def fit(text: str, width: int) -> str:
    """Cut to `width` columns, with an ellipsis."""
    if display_width(text) <= width:
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
    """Pad with spaces to `width` columns."""
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
