"""Find grapheme boundaries, so that text is not split inside a visible character.

Implements extended grapheme clusters (UAX 29) with the standard library's character data. Where
that data lacks a property, neighbors stay together.
"""

from bisect import bisect_right
from enum import Enum, auto
from unicodedata import category

_ZWJ = "\u200d"
_CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_MARKS = frozenset({"Mn", "Me", "Mc"})
_ATTACHED = frozenset("\u0e33\u0eb3\uff9e\uff9f\u200c\u200d")
"""Characters that extend their base without being marks by category."""

_LINKERS = frozenset("\u094d\u09cd\u0acd\u0b4d\u0c4d\u0d4d")
"""Virama characters that join the consonants on both sides."""

_PREPENDED = (
    *((0x0600, 0x0605), (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2)),
    *((0x0D4E, 0x0D4E), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x111C2, 0x111C3)),
    *((0x1193F, 0x1193F), (0x11941, 0x11941), (0x11A3A, 0x11A3A), (0x11A84, 0x11A89)),
    *((0x11D46, 0x11D46), (0x11F02, 0x11F02)),
)

_PICTURES = (
    *((0xA9, 0xA9), (0xAE, 0xAE), (0x203C, 0x203C), (0x2049, 0x2049), (0x2122, 0x2122)),
    *((0x2139, 0x2139), (0x2194, 0x2199), (0x21A9, 0x21AA), (0x231A, 0x231B), (0x2328, 0x2328)),
    *((0x2388, 0x2388), (0x23CF, 0x23CF), (0x23E9, 0x23F3), (0x23F8, 0x23FA), (0x24C2, 0x24C2)),
    *((0x25AA, 0x25AB), (0x25B6, 0x25B6), (0x25C0, 0x25C0), (0x25FB, 0x25FE), (0x2600, 0x2605)),
    *((0x2607, 0x2612), (0x2614, 0x2685), (0x2690, 0x2705), (0x2708, 0x2712), (0x2714, 0x2714)),
    *((0x2716, 0x2716), (0x271D, 0x271D), (0x2721, 0x2721), (0x2728, 0x2728), (0x2733, 0x2734)),
    *((0x2744, 0x2744), (0x2747, 0x2747), (0x274C, 0x274C), (0x274E, 0x274E), (0x2753, 0x2755)),
    *((0x2757, 0x2757), (0x2763, 0x2767), (0x2795, 0x2797), (0x27A1, 0x27A1), (0x27B0, 0x27B0)),
    *((0x27BF, 0x27BF), (0x2934, 0x2935), (0x2B05, 0x2B07), (0x2B1B, 0x2B1C), (0x2B50, 0x2B50)),
    *((0x2B55, 0x2B55), (0x3030, 0x3030), (0x303D, 0x303D), (0x3297, 0x3297), (0x3299, 0x3299)),
    *((0x1F000, 0x1F0FF), (0x1F10D, 0x1F10F), (0x1F12F, 0x1F12F), (0x1F16C, 0x1F171)),
    *((0x1F17E, 0x1F17F), (0x1F18E, 0x1F18E), (0x1F191, 0x1F19A), (0x1F1AD, 0x1F1E5)),
    *((0x1F201, 0x1F20F), (0x1F21A, 0x1F21A), (0x1F22F, 0x1F22F), (0x1F232, 0x1F23A)),
    *((0x1F23C, 0x1F23F), (0x1F249, 0x1F3FA), (0x1F400, 0x1F53D), (0x1F546, 0x1F64F)),
    *((0x1F680, 0x1F6FF), (0x1F774, 0x1F77F), (0x1F7D5, 0x1F7FF), (0x1F80C, 0x1F80F)),
    *((0x1F848, 0x1F84F), (0x1F85A, 0x1F85F), (0x1F888, 0x1F88F), (0x1F8AE, 0x1F8FF)),
    *((0x1F90C, 0x1F93A), (0x1F93C, 0x1F945), (0x1F947, 0x1FAFF), (0x1FC00, 0x1FFFD)),
)
"""Characters that can be joined into one emoji (Extended_Pictographic)."""

_PREPENDED_STARTS = tuple(first for first, _ in _PREPENDED)
_PICTURE_STARTS = tuple(first for first, _ in _PICTURES)


class _Kind(Enum):
    OTHER = auto()
    CONTROL = auto()
    EXTEND = auto()
    JOINER = auto()
    PREPEND = auto()
    FLAG = auto()
    PICTURE = auto()
    HANGUL_L = auto()
    HANGUL_V = auto()
    HANGUL_T = auto()
    HANGUL_LV = auto()
    HANGUL_LVT = auto()


_HANGUL_FOLLOWS = {
    _Kind.HANGUL_L: {_Kind.HANGUL_L, _Kind.HANGUL_V, _Kind.HANGUL_LV, _Kind.HANGUL_LVT},
    _Kind.HANGUL_V: {_Kind.HANGUL_V, _Kind.HANGUL_T},
    _Kind.HANGUL_LV: {_Kind.HANGUL_V, _Kind.HANGUL_T},
    _Kind.HANGUL_T: {_Kind.HANGUL_T},
    _Kind.HANGUL_LVT: {_Kind.HANGUL_T},
}


def is_boundary(text: str, at: int, floor: int = 0) -> bool:
    """Whether `at` is a boundary; text before `floor` is ignored."""
    if at <= floor or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before != "\r" or after != "\n"
    left, right = _kind(before), _kind(after)
    if _Kind.CONTROL in (left, right):
        return True
    if _always_joined(left, right):
        return False
    return not _joined_here(text, at, floor, (left, right))


def last_boundary(text: str, at: int, floor: int) -> int:
    """Return the last boundary at or before `at`, or `floor`."""
    while at > floor and not is_boundary(text, at, floor):
        at -= 1
    return at


def _always_joined(left: _Kind, right: _Kind) -> bool:
    if right in (_Kind.EXTEND, _Kind.JOINER) or left is _Kind.PREPEND:
        return True
    return right in _HANGUL_FOLLOWS.get(left, ())


def _joined_here(text: str, at: int, floor: int, kinds: tuple[_Kind, _Kind]) -> bool:
    """Handle the cases that depend on more than the two neighbors."""
    match kinds:
        case (_Kind.FLAG, _Kind.FLAG):
            return _flags_before(text, at, floor) % 2 == 1
        case (_Kind.JOINER, _Kind.PICTURE):
            return _joins_picture(text, at - 1, floor)
        case (_Kind.JOINER | _Kind.EXTEND, _Kind.OTHER):
            return category(text[at]) == "Lo" and _links_consonants(text, at, floor)
        case _:
            return False


def _kind(character: str) -> _Kind:
    code = ord(character)
    if _is_extending(character, code):
        return _Kind.JOINER if character == _ZWJ else _Kind.EXTEND
    if _within(code, _PREPENDED, _PREPENDED_STARTS):
        return _Kind.PREPEND
    if _within(code, _PICTURES, _PICTURE_STARTS):
        return _Kind.PICTURE
    if category(character) in _CONTROLS or _is_ignorable(code):
        return _Kind.CONTROL
    return _Kind.FLAG if 0x1F1E6 <= code <= 0x1F1FF else _hangul(code)


def _is_extending(character: str, code: int) -> bool:
    if category(character) in _MARKS or character in _ATTACHED:
        return True
    return 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F


def _is_ignorable(code: int) -> bool:
    """Code points reserved for controls."""
    return 0xE0000 <= code <= 0xE0FFF or 0xFFF0 <= code <= 0xFFF8 or code == 0x2065


def _within(code: int, ranges: tuple[tuple[int, int], ...], starts: tuple[int, ...]) -> bool:
    index = bisect_right(starts, code) - 1
    return index >= 0 and code <= ranges[index][1]


def _hangul(code: int) -> _Kind:
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return _Kind.HANGUL_L
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return _Kind.HANGUL_V
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return _Kind.HANGUL_T
    if 0xAC00 <= code <= 0xD7A3:
        return _Kind.HANGUL_LVT if (code - 0xAC00) % 28 else _Kind.HANGUL_LV
    return _Kind.OTHER


def _flags_before(text: str, at: int, floor: int) -> int:
    start = at
    while start > floor and _kind(text[start - 1]) is _Kind.FLAG:
        start -= 1
    return at - start


def _joins_picture(text: str, joiner: int, floor: int) -> bool:
    """Whether a pictograph, possibly with marks, precedes the joiner."""
    at = joiner
    while at > floor and _kind(text[at - 1]) is _Kind.EXTEND:
        at -= 1
    return at > floor and _kind(text[at - 1]) is _Kind.PICTURE


def _links_consonants(text: str, at: int, floor: int) -> bool:
    linked = False
    while at > floor and _kind(text[at - 1]) in (_Kind.EXTEND, _Kind.JOINER):
        at -= 1
        linked = linked or text[at] in _LINKERS
    return linked and at > floor and category(text[at - 1]) == "Lo"
