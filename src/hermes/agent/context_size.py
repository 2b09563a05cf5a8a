"""Estimate token counts and decide when a conversation needs compaction."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from hermes.schema.messages import Media, Message, ToolCall, Usage
from hermes.schema.tools import ToolSpec

_CHARACTERS_PER_TOKEN = 4
"""A rough average."""
_MESSAGE_TOKENS = 8
"""Overhead of a message in addition to its text."""
_IMAGE_TOKENS = 1_500

MIN_THRESHOLD = 64_000
_LARGE_WINDOW = 512_000
_SMALL_WINDOW_SHARE = 0.75
_CODEX_SHARE = 0.85
_MAX_SHARE = 0.85
_CODEX_MODELS = ("gpt-5.4", "gpt-5.5", "gpt-5.6")


class CompactionLimits(Struct, frozen=True, kw_only=True):
    threshold: float = 0.5  # share of the window
    target: float = 0.2  # share of the threshold that is kept verbatim
    keep_first: int = 3  # messages kept at the start
    keep_last: int = 20  # messages kept at the end
    max_messages: int = 5_000  # compact at this number of messages in any case
    max_output: int = 0  # tokens reserved for the answer
    codex_raise: bool = True
    abort: bool = False
    stateful: tuple[str, ...] = ()  # tools that restore their state from their last result


def compaction_threshold(
    limits: CompactionLimits, window: int, model: str = "", provider: str = ""
) -> int:
    """The number of tokens at which a conversation is compacted."""
    room = max(window - limits.max_output, 1)
    share = limits.threshold
    if room < _LARGE_WINDOW:
        share = max(share, _SMALL_WINDOW_SHARE)
    if limits.codex_raise and "codex" in provider and model.startswith(_CODEX_MODELS):
        share = max(share, _CODEX_SHARE)
    wanted = max(int(room * share), MIN_THRESHOLD)
    return wanted if wanted < room else int(room * _MAX_SHARE)


def tail_budget(limits: CompactionLimits, threshold: int) -> int:
    return int(threshold * limits.target)


def min_tail_messages(limits: CompactionLimits) -> int:
    """Messages at the end that are kept even if they are long."""
    return min(max(limits.keep_last, 3), 8)


def summary_budget(content: int, window: int) -> int:
    """Maximum tokens for a summary of `content` tokens."""
    return min(max(content // 5, 2_000), 10_000, max(window // 20, 256))


def message_tokens(message: Message) -> int:
    size = 0
    for part in message.parts:
        if isinstance(part, Media):
            size += _IMAGE_TOKENS * _CHARACTERS_PER_TOKEN
        elif isinstance(part, ToolCall):
            size += len(part.name) + len(bytes(part.args))
        else:
            size += len(part.text)
    return _MESSAGE_TOKENS + size // _CHARACTERS_PER_TOKEN


def total_tokens(messages: Iterable[Message]) -> int:
    return sum(map(message_tokens, messages))


def tool_tokens(specs: Sequence[ToolSpec]) -> int:
    return sum(_MESSAGE_TOKENS + spec.characters // _CHARACTERS_PER_TOKEN for spec in specs)


def request_tokens(system: str, specs: Sequence[ToolSpec], messages: Sequence[Message]) -> int:
    tokens = len(system) // _CHARACTERS_PER_TOKEN + tool_tokens(specs)
    return tokens + total_tokens(messages) if messages else tokens


class TokenGauge:
    """How full the window is: the provider's last count plus an estimate of what came since.

    Sizes are those of the history, in characters.
    """

    def __init__(self, fixed: int) -> None:
        self._fixed = fixed
        self._counted = fixed
        self._size = 0

    def set_count(self, usage: Usage, size: int) -> None:
        """Set the provider's count for a history of this size, including the answer."""
        if usage.input:
            self._counted = usage.input + usage.output
            self._size = size

    def reset(self, fixed: int) -> None:
        """Discard the count, because the request has changed."""
        self._fixed = self._counted = fixed
        self._size = 0

    def tokens(self, size: int) -> int:
        return self._counted + max(size - self._size, 0) // _CHARACTERS_PER_TOKEN
