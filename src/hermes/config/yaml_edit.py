"""Change one setting in YAML text with ruamel.yaml; the other lines of the text stay as they are.

ruamel.yaml keeps comments, order and quotes, but writes some lines in its own style. So the text is
written twice, before and after the change, and only the difference is applied to the original.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from io import StringIO
from typing import NamedTuple, Protocol, cast

import yaml

from hermes.config.values import (
    KeyPath,
    UnsupportedEdit,
    as_list,
    as_mapping,
    remove_value,
    set_value,
)

_SECTION = r"[^\s#-][^#\n]*:[ \t]*(?:[&!]\S++[ \t]*+)*+(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*"
_NESTED_KEY = re.compile(rf"(?m)^{_SECTION}( +)[^\s#-]")
_NESTED_DASH = re.compile(rf"(?m)^( *){_SECTION}( *)- ")
_COMMENT = re.compile(r"\s*(?:#.*)?")
"""A blank line or a line with only a comment."""


class _Dumper(yaml.SafeDumper):
    """Writes multi-line text on one line, with escapes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = '"' if re.search(r"[\r\n\x85\u2028\u2029]", data) else None
        return yaml.ScalarNode("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def render_inline(value: object) -> str:
    """The value on one line, with the quotes that PyYAML needs to read it back."""
    listed = yaml.dump(
        [value],
        Dumper=_Dumper,
        default_flow_style=True,
        allow_unicode=True,
        width=1 << 30,
        sort_keys=False,
    )
    return listed.strip()[1:-1]


def set_in_text(text: str, path: KeyPath, value: object) -> Iterator[str]:
    """Versions of the text with the setting at `path` set; the caller takes the first correct."""
    keys = [_styled(name) if isinstance(name, str) else name for name in path]
    styled = cast("KeyPath", tuple(keys))
    return _edited(text, lambda document: set_value(document, styled, _styled(value)))


def remove_from_text(text: str, path: KeyPath) -> Iterator[str]:
    """Versions of the text without the setting at `path` and sections that become empty."""
    return _edited(text, lambda document: remove_value(document, path))


def _edited(text: str, change: Callable[[object], object]) -> Iterator[str]:
    """The text with the smallest difference first, as ruamel.yaml writes it last."""
    body = text.removeprefix("\ufeff")
    mark, ending = text[: len(text) - len(body)], "\r" if "\r\n" in body else ""
    if body and not body.endswith("\n"):
        body += f"{ending}\n"
    lines = body.split("\n")[:-1]
    bare = [line.removesuffix("\r") for line in lines]
    before, after = _rewritten("\n".join([*bare, ""]), change)
    spans, edits = (
        _spans(before, bare),
        [span for span in _spans(before, after) if not span.is_equal],
    )
    for found in ([_beside_comments(edit, before, after) for edit in edits], edits):
        patched = list(lines)
        for edit in reversed(found):
            start, end, lead, tail = _find_span(edit, spans, before)
            new = after[edit.new_start : edit.new_end]
            patched[start:end] = [line + ending for line in (*lead, *new, *tail)]
        yield mark + _joined(patched)
    yield mark + _joined([line + ending for line in after])


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


class _Span(NamedTuple):
    """The lines from `start` to `end` are the lines from `new_start` to `new_end` elsewhere."""

    start: int
    end: int
    new_start: int
    new_end: int
    is_equal: bool = True


def _spans(old: Sequence[str], new: Sequence[str]) -> list[_Span]:
    """The equal and the different parts; different ones are matched line by line if possible."""
    found: list[_Span] = []
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    for kind, start, end, new_start, new_end in matcher.get_opcodes():
        span = _Span(start, end, new_start, new_end, kind == "equal")
        if kind == "replace" and _has_same_length(span):
            ahead = span.new_start - span.start
            lines = range(span.start, span.end)
            found += [_Span(at, at + 1, at + ahead, at + ahead + 1, False) for at in lines]
        else:
            found.append(span)
    return found


def _has_same_length(span: _Span) -> bool:
    return span.end - span.start == span.new_end - span.new_start


def _beside_comments(edit: _Span, before: Sequence[str], after: Sequence[str]) -> _Span:
    """Keep comments that follow a removed setting; write a new one before those that follow.

    ruamel.yaml attaches comments to the setting before them, but people write them before the
    setting they are about.
    """
    start, end, lines = edit.start, edit.end, after[edit.new_start : edit.new_end]
    if not (lines and _COMMENT.fullmatch(lines[-1])):
        while end > start and _COMMENT.fullmatch(before[end - 1]):
            end -= 1
    while start == end and start > 0 and _COMMENT.fullmatch(before[start - 1]):
        start = end = start - 1
    return edit._replace(start=start, end=end)


def _find_span(
    edit: _Span, spans: Sequence[_Span], before: Sequence[str]
) -> tuple[int, int, Sequence[str], Sequence[str]]:
    """Where an edit of `before` is in the original, and lines to repeat on both sides of it.

    Lines are repeated where they cannot be matched one by one with those of the original.
    """
    first = next((span for span in spans if span.start <= edit.start < span.end), None)
    last = next((span for span in spans if span.start < edit.end <= span.end), None)
    start, lead = spans[-1].new_end if spans else 0, before[:0]
    end, tail = 0, before[:0]
    if first is not None and _has_same_length(first):
        start = first.new_start + edit.start - first.start
    elif first is not None:
        start, lead = first.new_start, before[first.start : edit.start]
    if last is not None and _has_same_length(last):
        end = last.new_start + edit.end - last.start
    elif last is not None:
        end, tail = last.new_end, before[edit.end : last.end]
    return start, max(start, end), lead, tail


class _RoundTripYaml(Protocol):
    """The part of ruamel.yaml that is used here; it ships no types."""

    preserve_quotes: bool
    allow_duplicate_keys: bool
    width: int

    def load(self, stream: str) -> object: ...
    def dump(self, data: object, stream: StringIO) -> None: ...
    def indent(self, mapping: int, sequence: int, offset: int) -> None: ...


def _round_trip(text: str) -> _RoundTripYaml:
    """Keeps the indentation of the text, and never folds lines."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, and only edits need it

    round_trip = cast("_RoundTripYaml", YAML())
    round_trip.preserve_quotes = True
    round_trip.allow_duplicate_keys = True
    round_trip.width = 1 << 30
    key, dash = _NESTED_KEY.search(text), _NESTED_DASH.search(text)
    offset = len(dash[2]) - len(dash[1]) if dash else 0
    round_trip.indent(mapping=len(key[1]) if key else 2, sequence=offset + 2, offset=offset)
    return round_trip


def _styled(value: object) -> object:
    """The value with the quotes and brackets that ruamel.yaml should write."""
    return _round_trip("").load(render_inline(value))


def _rewritten(text: str, change: Callable[[object], object]) -> tuple[list[str], list[str]]:
    """The lines as ruamel.yaml writes them before and after the change.

    Raises `UnsupportedEdit` for texts that only PyYAML accepts.
    """
    from ruamel.yaml.error import YAMLError  # noqa: PLC0415 - as above

    round_trip = _round_trip(text)
    try:
        document = round_trip.load(text)
        _show_comments(document)
        before = _dumped(round_trip, document)
        return before, _dumped(round_trip, change(document))
    except (YAMLError, KeyError) as error:
        # KeyError: ruamel cannot delete from a mapping that a merge key (`<<: *name`) refers to.
        raise UnsupportedEdit from error


class _Collection(Protocol):
    """A list or mapping of ruamel.yaml with its comments and its format attribute."""

    ca: "_Comments"
    fa: "_Format"


class _Comments(Protocol):
    items: Mapping[object, object]


class _Format(Protocol):
    def flow_style(self) -> bool | None: ...
    def set_block_style(self) -> None: ...


def _show_comments(value: object) -> None:
    """Write collections with comments between their brackets as blocks.

    ruamel.yaml reads such comments, but writes them only in blocks.
    """
    children = as_list(value) or [*(as_mapping(value) or {}).values()]
    for child in children:
        _show_comments(child)
    if isinstance(value, dict | list) and value:
        collection = cast("_Collection", value)
        if collection.fa.flow_style() and collection.ca.items:
            collection.fa.set_block_style()


def _dumped(round_trip: _RoundTripYaml, document: object) -> list[str]:
    if not document:
        return []
    stream = StringIO()
    round_trip.dump(document, stream)
    return stream.getvalue().split("\n")[:-1]
