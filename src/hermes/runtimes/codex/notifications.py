"""Codex's notifications, and its items as tool calls and results."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import head_and_tail
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import CodexError
from hermes.runtimes.codex.thread_store import ContextFill
from hermes.schema.messages import Usage
from hermes.schema.tools import Effect

MAX_RESULT = 50_000
"""Characters of one result."""
MAX_MCP_RESULT = 4_000
_STEP_MARKS = {"completed": "[x]", "inProgress": "[>]"}


class _ChangeKind(Struct):
    type: str = ""
    move_path: str | None = None


class FileChange(Struct):
    path: str = ""
    kind: _ChangeKind | str = ""
    diff: str = ""

    @property
    def action(self) -> str:
        return self.kind if isinstance(self.kind, str) else self.kind.type

    @property
    def new_path(self) -> str:
        """The new path; empty if it is not moved."""
        return "" if isinstance(self.kind, str) else self.kind.move_path or ""


class _McpText(Struct):
    text: str = ""
    message: str = ""


class _McpResult(Struct):
    content: list[_McpText] = []


class ThreadItem(Struct, rename="camel"):
    """The fields that we read of any kind of item; each has only some of them."""

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
    changes: list[FileChange] = []
    server: str | None = None
    tool: str | None = None
    arguments: Raw = Raw(b"{}")
    result: Raw = Raw(b"null")
    error: Raw = Raw(b"null")
    query: str | None = None
    path: str | None = None
    prompt: str | None = None


class CodexCall(Struct, frozen=True):
    """A call; `id` is derived from the item, so that it is stable."""

    id: str
    name: str
    args: Raw
    effect: Effect


class CallOutcome(Struct, frozen=True):
    """The result of a call; `shown` is for users. `untrusted` says that it has untrusted content.

    `unverified` says that it may contain what others wrote.
    """

    text: str
    failed: bool = False
    shown: str = ""
    untrusted: bool = False
    unverified: bool = False


def call_of_item(item: ThreadItem) -> CodexCall | None:
    """Return None for an item that is not a tool call."""
    match item.type:
        case "commandExecution":
            args = {"command": item.command or "", "cwd": item.cwd or ""}
            return _make_call(item, "exec_command", args, Effect.OUTSIDE)
        case "fileChange":
            changes = [{"kind": change.action, "path": change.path} for change in item.changes]
            return _make_call(item, "apply_patch", {"changes": changes}, Effect.WRITE)
        case "mcpToolCall":
            name = f"mcp.{item.server or 'server'}.{item.tool or 'tool'}"
            is_object = bytes(item.arguments).lstrip().startswith(b"{")
            return _make_call(item, name, item.arguments if is_object else {}, Effect.OUTSIDE)
        case "collabAgentToolCall":
            name = f"agents.{item.tool or 'tool'}"
            return _make_call(item, name, {"prompt": item.prompt or ""}, Effect.OUTSIDE)
        case kind if not kind or kind in protocol.TRUSTED_ITEMS:
            return None
        case _:
            return _read_call(item)


def outcome_of_item(item: ThreadItem) -> CallOutcome:
    match item.type:
        case "commandExecution":
            return _command_outcome(item)
        case "fileChange":
            return _patch_outcome(item)
        case "mcpToolCall":
            return _mcp_outcome(item)
        case _:
            untrusted = item.type not in protocol.TRUSTED_ITEMS
            return CallOutcome(f"{item.type}: {item.status or 'done'}", untrusted=untrusted)


def reasoning_text(item: ThreadItem) -> str:
    """Return the text of a reasoning item, preferring the summary."""
    if item.summary:
        return "\n\n".join(item.summary)
    try:
        return "\n\n".join(msgspec.json.decode(item.content, type=list[str]))
    except JSON_ERRORS:
        return ""


def changed_paths(changes: Sequence[FileChange]) -> str:
    return ", ".join(f"{change.action or 'change'} {change.path}" for change in changes)


def _read_call(item: ThreadItem) -> CodexCall:
    """Record items of any kind that read untrusted text, so that later turns know about it."""
    match item.type:
        case "webSearch":
            name, args = "web_search", {"query": item.query or ""}
        case "imageView":
            name, args = "view_image", {"path": item.path or ""}
        case kind:
            name, args = kind, {}
    return _make_call(item, name, args, Effect.READ)


def _make_call(item: ThreadItem, name: str, args: object, effect: Effect) -> CodexCall:
    encoded = args if isinstance(args, Raw) else Raw(msgspec.json.encode(args))
    return CodexCall(f"codex_{item.type}_{item.id}", name, encoded, effect)


def _command_outcome(item: ThreadItem) -> CallOutcome:
    output = head_and_tail(item.aggregated_output or "", MAX_RESULT)
    if item.status == "declined":
        return CallOutcome("Declined: it was not run.", failed=True)
    if item.exit_code:
        return CallOutcome(f"[exit {item.exit_code}]\n{output}", failed=True)
    if item.status == "failed":
        return CallOutcome(output or "It could not be run.", failed=True)
    return CallOutcome(output or "(no output)")


def _patch_outcome(item: ThreadItem) -> CallOutcome:
    if item.status == "declined":
        return CallOutcome("Declined: nothing was changed.", failed=True)
    done = item.status == "completed"
    text = f"apply_patch status={item.status}, {len(item.changes)} change(s): "
    shown = "\n".join(f"{change.action} {change.path}\n{change.diff}" for change in item.changes)
    return CallOutcome(
        text + changed_paths(item.changes), failed=not done, shown=head_and_tail(shown, MAX_RESULT)
    )


def _mcp_outcome(item: ThreadItem) -> CallOutcome:
    error = _try_decode(item.error, _McpText)
    if error is not None and error.message:
        return CallOutcome(head_and_tail(error.message, 1_000), failed=True, untrusted=True)
    result = _try_decode(item.result, _McpResult)
    output = "\n".join(part.text for part in result.content if part.text) if result else ""
    text = head_and_tail(output, MAX_MCP_RESULT) or "(no output)"
    return CallOutcome(text, failed=item.status == "failed", untrusted=True)


_Decoded = TypeVar("_Decoded", _McpText, _McpResult)


def _try_decode(data: Raw, kind: type[_Decoded]) -> _Decoded | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except JSON_ERRORS:
        return None


class ItemNotification(Struct, rename="camel"):
    item: ThreadItem = msgspec.field(default_factory=ThreadItem)
    turn_id: str = ""
    started_at_ms: float = 0.0
    completed_at_ms: float = 0.0


class DeltaNotification(Struct, rename="camel"):
    item_id: str = ""
    delta: str = ""
    message: str = ""
    stdin: str = ""
    turn_id: str = ""


class _PlanStep(Struct):
    step: str = ""
    status: str = ""


class PlanNotification(Struct):
    plan: list[_PlanStep] = []

    @property
    def description(self) -> str:
        """Empty if there is no plan."""
        lines = [f"{_STEP_MARKS.get(step.status, '[ ]')} {step.step}" for step in self.plan]
        return "Plan: " + "; ".join(lines) if lines else ""


class DiffNotification(Struct):
    diff: str = ""

    @property
    def description(self) -> str:
        """Empty if nothing has changed."""
        lines = self.diff.splitlines()
        files = sum(line.startswith("diff --git") for line in lines)
        more = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
        less = sum(line.startswith("-") and not line.startswith("---") for line in lines)
        return f"Changes so far: {files} file(s), +{more} -{less}." if files else ""


class ErrorNotification(Struct, rename="camel"):
    error: CodexError = CodexError()
    message: str = ""


class CodexTurnEnd(Struct):
    """How the turn ended: completed, interrupted or failed."""

    id: str = ""
    status: str = ""
    error: CodexError | None = None


class TurnNotification(Struct):
    turn: CodexTurnEnd = msgspec.field(default_factory=CodexTurnEnd)


class _TokenCounts(Struct, rename="camel"):
    total_tokens: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0

    def usage(self) -> Usage:
        return Usage(
            self.input_tokens,
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_input_tokens,
            self.reasoning_output_tokens,
        )


class _TokenUsage(Struct, rename="camel"):
    last: _TokenCounts = msgspec.field(default_factory=_TokenCounts)
    total: _TokenCounts = msgspec.field(default_factory=_TokenCounts)
    model_context_window: int | None = None


class _UsageNotification(Struct, rename="camel"):
    token_usage: _TokenUsage = msgspec.field(default_factory=_TokenUsage)
    turn_id: str = ""


def thread_total(params: Raw) -> int | None:
    """Return the total tokens of a thread; None if unreadable."""
    try:
        return msgspec.json.decode(params, type=_UsageNotification).token_usage.total.total_tokens
    except JSON_ERRORS:
        return None


class UsageMeter:
    """Feed it every usage notification; `take` returns the usage since the last call."""

    def __init__(self, total: int | None = None, filled: ContextFill | None = None) -> None:
        """`total` is what the thread had used before, if known."""
        self.total = total
        self.filled = filled or ContextFill()
        self._usage = Usage()

    def feed(self, params: Raw, turn: str) -> None:
        """Raises `DecodeError`. The usage of other turns only updates the total."""
        note = msgspec.json.decode(params, type=_UsageNotification)
        usage = note.token_usage
        # Codex repeats the same numbers before and after compacting a thread.
        is_new = usage.total.total_tokens == 0 or usage.total.total_tokens != self.total
        self.total = usage.total.total_tokens
        self.filled = ContextFill(usage.last.total_tokens, usage.model_context_window or 0)
        if is_new and (not turn or note.turn_id == turn):
            self._usage += usage.last.usage()

    def take(self) -> Usage:
        usage, self._usage = self._usage, Usage()
        return usage
