"""The tokens that codex tells of: what a turn took, and how much of the window its thread fills."""

import msgspec
from msgspec import Raw, Struct

from hermes.runtimes.codex.kept import Filled
from hermes.schema.messages import Usage


class _Tokens(Struct, rename="camel"):
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
    last: _Tokens = msgspec.field(default_factory=_Tokens)
    total: _Tokens = msgspec.field(default_factory=_Tokens)
    model_context_window: int | None = None


class _UsageNote(Struct, rename="camel"):
    token_usage: _TokenUsage = msgspec.field(default_factory=_TokenUsage)
    turn_id: str = ""


def total_of(params: Raw) -> int | None:
    """What the whole thread took so far; None when it cannot be read."""
    try:
        return msgspec.json.decode(params, type=_UsageNote).token_usage.total.total_tokens
    except (msgspec.DecodeError, RecursionError):
        return None


class Spending:
    """Feed it every note; `take` gives what was used since it was taken last."""

    def __init__(self, total: int | None = None, filled: Filled | None = None) -> None:
        """`total` is what the thread had taken before, where that is known."""
        self.total = total
        self.filled = filled or Filled()
        self._usage = Usage()

    def feed(self, params: Raw, turn: str) -> None:
        """Raises `DecodeError`. What another turn took is only remembered."""
        note = msgspec.json.decode(params, type=_UsageNote)
        told = note.token_usage
        # Before and after it shortens a thread, codex tells the same once more.
        is_new = told.total.total_tokens == 0 or told.total.total_tokens != self.total
        self.total = told.total.total_tokens
        self.filled = Filled(told.last.total_tokens, told.model_context_window or 0)
        if is_new and (not turn or note.turn_id == turn):
            self._usage += told.last.usage()

    def take(self) -> Usage:
        usage, self._usage = self._usage, Usage()
        return usage
