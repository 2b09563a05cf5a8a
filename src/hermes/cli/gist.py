"""A call and its result in a few words, for people who look on."""

import msgspec
from msgspec import Struct

from hermes.kit.text import one_line, plural
from hermes.schema.messages import Result, ToolCall, text_of

DIFF_LINES = 40
FIRST_LINES = 4
LAST_LINES = 6
_TELLING = ("command", "path", "pattern", "query", "url", "goal", "name", "content")
_LONG = 400


class Gist(Struct, frozen=True):
    """One line that says how it went, and some more to look at below it."""

    head: str
    lines: tuple[str, ...] = ()
    diff: bool = False


def describe_call(call: ToolCall, most: int = 0) -> str:
    """The tool and the one argument that says most, of that at most so many characters."""
    args = msgspec.json.decode(call.args)
    if not isinstance(args, dict):
        return call.name
    known = msgspec.convert(args, dict[str, object])
    telling = next((known[name] for name in _TELLING if isinstance(known.get(name), str)), "")
    return f"{call.name} {one_line(str(telling), min(most or _LONG, _LONG))}".rstrip()


def describe_result(result: Result) -> Gist:
    head = _trouble(text_of(result)) if result.failed else ""
    lines = result.shown.splitlines()
    if result.shown.startswith("--- "):
        return _of_diff(lines[2:], head)
    if not lines:
        return Gist(head or _without_braces(text_of(result)))
    first, *others = [*([head] if head else []), *_ends(lines)]
    return Gist(first, tuple(others))


def _trouble(text: str) -> str:
    """What the tool itself says went wrong."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return one_line(text, _LONG)
    for name in ("error", "exit_code_meaning"):
        if isinstance(said := fields.get(name), str) and said:
            return one_line(said, _LONG)
    return f"exit code {code}" if (code := fields.get("exit_code")) else "failed"


def _without_braces(text: str) -> str:
    """A result made for the model only is not for reading."""
    return "" if text.startswith("{") else one_line(text, _LONG)


def _of_diff(lines: list[str], head: str) -> Gist:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    more = len(lines) - DIFF_LINES
    shown = [*lines[:DIFF_LINES], *([f"… {plural(more, 'more line')}"] if more > 0 else [])]
    return Gist(head or f"+{added} -{removed}", tuple(shown), diff=True)


def _ends(lines: list[str]) -> list[str]:
    """The first lines and the last ones; between them, how many there are."""
    left_out = len(lines) - FIRST_LINES - LAST_LINES
    if left_out <= 1:
        return lines
    return [*lines[:FIRST_LINES], f"… {left_out:,} lines …", *lines[-LAST_LINES:]]
