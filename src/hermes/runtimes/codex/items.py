"""What codex did, as calls and results of ours."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from hermes.kit.text import head_and_tail
from hermes.runtimes.codex import names
from hermes.schema.tools import Effect

LONGEST = 50_000
"""Characters of one result."""
LONGEST_MCP = 4_000


class _Kind(Struct):
    type: str = ""
    move_path: str | None = None


class Change(Struct):
    path: str = ""
    kind: _Kind | str = ""
    diff: str = ""

    @property
    def what(self) -> str:
        return self.kind if isinstance(self.kind, str) else self.kind.type

    @property
    def moved(self) -> str:
        """Where to; empty when it stays."""
        return "" if isinstance(self.kind, str) else self.kind.move_path or ""


class _Words(Struct):
    text: str = ""
    message: str = ""


class _McpResult(Struct):
    content: list[_Words] = []


class Item(Struct, rename="camel"):
    """Everything that we read of any kind of item; each has only some of it."""

    type: str = ""
    id: str = ""
    client_id: str | None = None
    text: str | None = None
    summary: list[str] | None = None
    content: Raw = Raw(b"null")
    command: str | None = None
    cwd: str | None = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    status: str | None = None
    changes: list[Change] = []
    server: str | None = None
    tool: str | None = None
    arguments: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: Raw = Raw(b"null")
    query: str | None = None
    path: str | None = None
    prompt: str | None = None


class Work(Struct, frozen=True):
    """One call: `id` is made from the item's, so that it is the same whenever it is read."""

    id: str
    name: str
    args: Raw
    effect: Effect


class Came(Struct, frozen=True):
    """What a call came to; `shown` is for people. `foreign`: codex has read strangers' words.

    `unverified`: it may have read what somebody else wrote.
    """

    text: str
    failed: bool = False
    shown: str = ""
    foreign: bool = False
    unverified: bool = False


def work_of(item: Item) -> Work | None:
    """None for an item that is no work on something."""
    match item.type:
        case "commandExecution":
            args = {"command": item.command or "", "cwd": item.cwd or ""}
            return _work(item, "exec_command", args, Effect.OUTSIDE)
        case "fileChange":
            changes = [{"kind": one.what, "path": one.path} for one in item.changes]
            return _work(item, "apply_patch", {"changes": changes}, Effect.WRITE)
        case "mcpToolCall":
            name = f"mcp.{item.server or 'server'}.{item.tool or 'tool'}"
            args = Raw(bytes(item.arguments) if _is_object(item.arguments) else b"{}")
            return Work(_call_id(item), name, args, Effect.OUTSIDE)
        case "collabAgentToolCall":
            name = f"agents.{item.tool or 'tool'}"
            return _work(item, name, {"prompt": item.prompt or ""}, Effect.OUTSIDE)
        case kind if not kind or kind in names.HARMLESS:
            return None
        case _:
            return _reading(item)


def came_of(item: Item) -> Came:
    match item.type:
        case "commandExecution":
            return _command(item)
        case "fileChange":
            return _patch(item)
        case "mcpToolCall":
            return _mcp(item)
        case _:
            strange = item.type not in names.HARMLESS
            return Came(f"{item.type}: {item.status or 'done'}", foreign=strange)


def thoughts_of(item: Item) -> str:
    """What a reasoning item says: the summary where there is one."""
    if item.summary:
        return "\n\n".join(item.summary)
    try:
        return "\n\n".join(msgspec.json.decode(item.content, type=list[str]))
    except (msgspec.DecodeError, RecursionError):
        return ""


def paths_of(changes: Sequence[Change]) -> str:
    return ", ".join(f"{one.what or 'change'} {one.path}" for one in changes)


def _reading(item: Item) -> Work:
    """Of any kind: that strangers spoke has to stand in the transcript, for whoever goes on."""
    match item.type:
        case "webSearch":
            name, args = "web_search", {"query": item.query or ""}
        case "imageView":
            name, args = "view_image", {"path": item.path or ""}
        case kind:
            name, args = kind, {}
    return _work(item, name, args, Effect.READ)


def _work(item: Item, name: str, args: object, effect: Effect) -> Work:
    return Work(_call_id(item), name, Raw(msgspec.json.encode(args)), effect)


def _call_id(item: Item) -> str:
    return f"codex_{item.type}_{item.id}"


def _command(item: Item) -> Came:
    output = head_and_tail(item.aggregated_output or "", LONGEST)
    if item.status == "declined":
        return Came("Declined: it was not run.", failed=True)
    if item.exit_code:
        return Came(f"[exit {item.exit_code}]\n{output}", failed=True)
    if item.status == "failed":
        return Came(output or "It could not be run.", failed=True)
    return Came(output or "(no output)")


def _patch(item: Item) -> Came:
    if item.status == "declined":
        return Came("Declined: nothing was changed.", failed=True)
    done = item.status == "completed"
    text = f"apply_patch status={item.status}, {len(item.changes)} change(s): "
    shown = "\n".join(f"{one.what} {one.path}\n{one.diff}" for one in item.changes)
    return Came(text + paths_of(item.changes), failed=not done, shown=head_and_tail(shown, LONGEST))


def _mcp(item: Item) -> Came:
    error = _decoded(item.error, _Words)
    if error is not None and error.message:
        return Came(head_and_tail(error.message, 1_000), failed=True, foreign=True)
    result = _decoded(item.result, _McpResult)
    words = "\n".join(one.text for one in result.content if one.text) if result else ""
    text = head_and_tail(words, LONGEST_MCP) or "(no output)"
    return Came(text, failed=item.status == "failed", foreign=True)


_Read = TypeVar("_Read", _Words, _McpResult)


def _decoded(data: Raw, kind: type[_Read]) -> _Read | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_object(data: Raw) -> bool:
    return bytes(data).lstrip().startswith(b"{")
