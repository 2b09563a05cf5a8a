"""The notifications of codex that we handle."""

import msgspec
from msgspec import Raw, Struct

from hermes.runtimes.codex.errors import CodexError
from hermes.runtimes.codex.items import ThreadItem
from hermes.runtimes.codex.thread_store import ContextFill
from hermes.schema.messages import Usage

_STEP_MARKS = {"completed": "[x]", "inProgress": "[>]"}


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
        lines = [f"{_STEP_MARKS.get(one.status, '[ ]')} {one.step}" for one in self.plan]
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
    except (msgspec.DecodeError, RecursionError):
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
