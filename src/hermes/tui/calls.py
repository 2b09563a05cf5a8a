"""A call and its result as a card tells them: one line, and everything that is behind it."""

import msgspec
from msgspec import Struct
from textual.content import Content

from hermes.kit.plain import flat, harmless
from hermes.kit.text import head_and_tail, one_line, plural
from hermes.schema.messages import Result, ToolCall, text_of

_MOST = 20_000
"""Characters of one output that a card shows."""
_LINE = 400
_FIRST = ("command", "path", "pattern", "query", "url", "goal", "question", "name", "content")
FEW = 12
"""Lines of a diff that are shown without being asked for."""


class Verdict(Struct, frozen=True):
    """How a call went, in a few words, and whether its result is a diff, and a short one."""

    text: str
    diff: bool = False
    short: bool = False


def headline(call: ToolCall, most: int = 0) -> str:
    """The tool and the argument that says most, of that at most so many characters."""
    known = _arguments(call)
    texts = [name for name, value in known.items() if isinstance(value, str)]
    name = next((name for name in (*_FIRST, *texts) if name in texts), "")
    width = min(most or _LINE, _LINE)
    return f"{call.name} {one_line(flat(str(known.get(name, ''))), width)}".rstrip()


def verdict(result: Result) -> Verdict:
    if is_diff(result) and not result.failed:
        lines = result.shown.splitlines()[2:]
        added = sum(line.startswith("+") for line in lines)
        removed = sum(line.startswith("-") for line in lines)
        return Verdict(f"+{added} -{removed}", diff=True, short=len(lines) <= FEW)
    if result.failed:
        return Verdict(_trouble(text_of(result)))
    lines = result.shown.splitlines()
    if len(lines) == 1:
        return Verdict(one_line(flat(lines[0]), _LINE))
    return Verdict(plural(len(lines), "line") if lines else "")


def is_diff(result: Result) -> bool:
    return result.shown.startswith("--- ")


def is_list(call: ToolCall, result: Result | None) -> bool:
    """What is to be done is written to be read."""
    return call.name == "todo" and result is not None and bool(result.shown) and not result.failed


def behind(call: ToolCall, result: Result | None, progress: str) -> Content:
    """The arguments, and what came of it so far."""
    if result is not None and is_diff(result) and not result.failed:
        return _coloured(result.shown)
    parts = [] if is_list(call, result) else [_told(call)]
    if result is None:
        if progress:
            parts.append(Content.styled(harmless(progress).expandtabs(), "dim"))
    elif output := result.shown or text_of(result):
        parts.append(Content(head_and_tail(harmless(output), _MOST).expandtabs().rstrip("\n")))
    return Content("\n").join(parts)


def _told(call: ToolCall) -> Content:
    if call.broken:
        return Content.styled(harmless(call.broken), "$warning")
    known = _arguments(call)
    lines: list[Content] = []
    for name, value in known.items():
        words = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        words = head_and_tail(harmless(words), _MOST).expandtabs()
        lead = "$ " if name == "command" else f"{flat(name)}: "
        lines.append(Content.assemble((lead, "dim"), words))
    return Content("\n").join(lines) if lines else Content.styled(call.name, "dim")


def _arguments(call: ToolCall) -> dict[str, object]:
    try:
        return msgspec.json.decode(call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _trouble(text: str) -> str:
    """What the tool itself says went wrong."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return one_line(flat(text), _LINE)
    for name in ("error", "exit_code_meaning"):
        if isinstance(said := fields.get(name), str) and said:
            return one_line(flat(said), _LINE)
    return f"exit code {code}" if (code := fields.get("exit_code")) else "failed"


def _coloured(diff: str) -> Content:
    """Without the names of the files, which the line above has."""
    lines = head_and_tail(harmless(diff), _MOST).expandtabs().split("\n")[2:]
    return Content("\n").join(Content.styled(line, _style(line)) for line in lines if line)


def _style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    if line.startswith("+"):
        return "$success"
    return "$error" if line.startswith("-") else ""
