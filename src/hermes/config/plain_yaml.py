"""Parse the simple subset of YAML that most config files use, without importing PyYAML.

`read_plain_yaml` returns None for anything beyond that subset; otherwise the result is the same
as PyYAML's.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

IndentedLine: TypeAlias = tuple[int, str]

_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,99}):(?: +|$)")
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,99})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]+")
_TEXT = re.compile(
    r"(?:[A-Za-z$/]|\.\.?/|~/|--?[A-Za-z]).*|\."
    r"|[1-9][0-9]*[A-Za-z][A-Za-z0-9]*|[0-9]+(?:\.[0-9]+){2,}"
)
_QUOTED = re.compile(r"'([^']*)'|\"([^\"\\]*)\"")
_COMMENT = re.compile(r"(?: +#.*| *)")
_FLOW_TOKEN = re.compile(
    r" *(?:([\[\]{},])|'([^']*)'|\"([^\"\\]*)\"|([^\s\[\]{},'\"#][^\[\]{},'\"#:]*)) *"
)
_FLOW_MARK = re.compile(r" *([\]},])")

_LITERALS: Mapping[str, bool | None] = {
    **dict.fromkeys(["yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


class _NotPlain(Exception):
    pass


def read_plain_yaml(text: str) -> dict[str, object] | None:
    """Parse the text, or return None if it needs the real parser."""
    if not text.replace("\n", "").isprintable():
        return None
    try:
        raw_lines = [raw for raw in text.split("\n") if raw.strip() and raw.lstrip()[0] != "#"]
        lines = [(len(raw) - len(raw.lstrip(" ")), raw.strip(" ")) for raw in raw_lines]
        if not lines:
            return {}
        value, after = _mapping(lines, 0, lines[0][0])
    except (_NotPlain, RecursionError):
        return None
    return value if after == len(lines) else None


def _mapping(lines: list[IndentedLine], at: int, indent: int) -> tuple[dict[str, object], int]:
    found: dict[str, object] = {}
    while at < len(lines) and lines[at][0] == indent:
        key = _KEY.match(lines[at][1])
        if key is None or key[1] in found or key[1] in _LITERALS:
            raise _NotPlain
        found[key[1]], at = _value(lines, at, lines[at][1][key.end() :], indent)
    if at < len(lines) and lines[at][0] > indent:
        raise _NotPlain
    return found, at


def _value(lines: list[IndentedLine], at: int, rest: str, indent: int) -> tuple[object, int]:
    """The value of a key: on the same line, in an indented block, or missing."""
    if rest and rest[0] != "#":
        value: object
        if rest[0] in "[{":
            value, end = _flow(rest, 0)
            _only_comment(rest[end:])
        elif rest[0] in "'\"":
            quoted = _QUOTED.match(rest)
            if quoted is None:
                raise _NotPlain
            _only_comment(rest[quoted.end() :])
            value = quoted[1] if quoted[1] is not None else quoted[2]
        else:
            bare = rest.partition(" #")[0].rstrip(" ")
            if ": " in bare or bare.endswith(":"):
                raise _NotPlain
            value = _scalar(bare)
        if at + 1 < len(lines) and lines[at + 1][0] > indent:
            raise _NotPlain
        return value, at + 1
    at += 1
    if at == len(lines) or lines[at][0] < indent:
        return None, at
    if lines[at][1].startswith("- "):
        return _sequence(lines, at, lines[at][0])
    return _mapping(lines, at, lines[at][0]) if lines[at][0] > indent else (None, at)


def _sequence(lines: list[IndentedLine], at: int, indent: int) -> tuple[list[object], int]:
    found: list[object] = []
    while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
        content = lines[at][1][2:].lstrip(" ")
        if content[0] == "#":
            raise _NotPlain
        if _KEY.match(content):
            lines[at] = (indent + len(lines[at][1]) - len(content), content)
            value, at = _mapping(lines, at, lines[at][0])
        else:
            value, at = _value(lines, at, content, indent)
        found.append(value)
    if at < len(lines) and lines[at][0] > indent:
        raise _NotPlain
    return found, at


def _only_comment(rest: str) -> None:
    if not _COMMENT.fullmatch(rest):
        raise _NotPlain


def _scalar(bare: str) -> object:
    if bare in _LITERALS:
        return _LITERALS[bare]
    if _INT.fullmatch(bare):
        return int(bare)
    if _FLOAT.fullmatch(bare):
        return float(bare)
    if _TEXT.fullmatch(bare):
        return bare
    raise _NotPlain


def _flow(text: str, at: int) -> tuple[object, int]:
    """One value in flow style."""
    token = _FLOW_TOKEN.match(text, at)
    if token is None:
        raise _NotPlain
    mark, single, double, bare = token.groups()
    if mark == "[":
        return _flow_list(text, token.end())
    if mark == "{":
        return _flow_mapping(text, token.end())
    if mark:
        raise _NotPlain
    if bare is None:
        return (single if single is not None else double), token.end()
    return _scalar(bare.rstrip(" ")), token.end()


def _flow_list(text: str, at: int) -> tuple[list[object], int]:
    found: list[object] = []
    more = text[at : at + 1] != "]"
    while more:
        value, at = _flow(text, at)
        found.append(value)
        more, at = _next_entry(text, at, "]")
    return found, at + (not found)


def _flow_mapping(text: str, at: int) -> tuple[dict[str, object], int]:
    found: dict[str, object] = {}
    more = text[at : at + 1] != "}"
    while more:
        key = _KEY.match(text, at)
        if key is None or key[1] in found or key[1] in _LITERALS:
            raise _NotPlain
        found[key[1]], at = _flow(text, key.end())
        more, at = _next_entry(text, at, "}")
    return found, at + (not found)


def _next_entry(text: str, at: int, end: str) -> tuple[bool, int]:
    """Whether another entry follows, and the offset after the separator or bracket."""
    mark = _FLOW_MARK.match(text, at)
    if mark is None or mark[1] not in {",", end}:
        raise _NotPlain
    if mark[1] == end:
        return False, mark.end()
    after = mark.end()
    while text[after : after + 1] == " ":
        after += 1
    return True, after
