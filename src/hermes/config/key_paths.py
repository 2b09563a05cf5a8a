"""Parse and format key paths: `agent.max_turns`, `list[0].name`, `providers."a.b".model`."""

import re
from typing import TypeAlias

from hermes.kit.errors import UsageError

KeyPath: TypeAlias = tuple[str | int, ...]

_STEP = re.compile(
    r"""
      \[ (?P<index>\d+) \]
    | (?P<dot>\.?) (?: "(?P<quoted>(?:[^"\\]|\\.)*)" | (?P<plain>[^."\[\]\s][^.\[\]]*) )
    """,
    re.VERBOSE,
)
_PLAIN = re.compile(r"[^.\"\[\]\s\d][^.\[\]]*")


def parse_path(text: str) -> KeyPath:
    """Split at dots; `[0]` or `.0` is a list index, quotes protect keys that contain dots."""
    path: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or (step["index"] is None and bool(step["dot"]) != bool(path)):
            raise UsageError(
                f"{text!r} is not the name of a setting",
                hint='Separate keys with dots: agent.max_turns, providers."a.b".model, list[0]',
            )
        path.append(_key(step))
        at = step.end()
    if not path or isinstance(path[0], int):
        raise UsageError(
            f"{text!r} is not the name of a setting", hint="Give a name such as agent.max_turns."
        )
    return tuple(path)


def format_path(path: KeyPath) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        name = step if _PLAIN.fullmatch(step) else _quoted(step)
        text += f".{name}" if text else name
    return text


def _quoted(step: str) -> str:
    return '"' + step.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _key(step: re.Match[str]) -> str | int:
    if step["index"] is not None:
        return int(step["index"])
    if step["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", step["quoted"])
    return int(step["plain"]) if step["dot"] and step["plain"].isdecimal() else step["plain"]
