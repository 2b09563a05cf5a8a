"""Turn any history into one that every provider accepts, and estimate its size in tokens.

A valid history is returned as the same objects, so that the bytes sent to the provider,
and with them its prompt cache, stay the same.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from sys import getsizeof
from typing import TypeAlias, overload

from msgspec import Raw, Struct
from msgspec.structs import replace

from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Reasoning,
    Result,
    Text,
    ToolCall,
    Trust,
    User,
)
from hermes.schema.tools import ToolSpec

INTERRUPTED = "Interrupted before a result was known."
NO_OUTPUT = "(no output)"
_OPENING = "(The earlier part of this conversation is not shown.)"
MAX_IDENTIFIER = 64
"""Maximum length of call ids and tool names that providers accept."""
_ID_PREFIX = 48
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")

_TRUST_ORDER = (Trust.PROGRAM, Trust.OWNER, Trust.GUEST, Trust.DATA)
"""Joined messages get the lowest trust among them."""

_CallPosition: TypeAlias = tuple[int, int]
"""The index of a message and of the call within it."""


def valid_history(messages: Sequence[Message]) -> list[Message]:
    """Return a history with a result per call, no empty messages, and alternating roles, user
    first.
    """
    return History(messages).valid()


class History(Sequence[Message]):
    """A transcript and its valid form, computed incrementally.

    Messages added between two requests must be complete: an answer, then all its results.
    """

    def __init__(self, past: Sequence[Message] = ()) -> None:
        self.replace(past)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._messages[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __reversed__(self) -> Iterator[Message]:
        return reversed(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: Message) -> None:
        self._messages.append(message)
        self.size += 1
        for part in message.parts:
            match part:
                case Text(text):
                    self.size += len(text)
                    self.memory_bytes += getsizeof(text)
                case Reasoning(text, signature):
                    self.size += len(text)
                    self.memory_bytes += getsizeof(text) + getsizeof(signature or "")
                case ToolCall(args=args, broken=broken):
                    data = bytes(args)
                    self.size += len(data)
                    self.memory_bytes += getsizeof(data) + getsizeof(broken)
                case Media():
                    pass
        if isinstance(message, Result):
            self.memory_bytes += getsizeof(message.shown)

    def replace(self, messages: Sequence[Message]) -> None:
        """Replace the messages in place, for every reference to this history."""
        self._messages: list[Message] = []
        self.size = 0
        """Approximate number of characters."""
        self.memory_bytes = 0
        """Memory used by its text, also by text that is only shown to people."""
        self.call_ids: set[str] = set()
        self._valid: list[Message] = []
        self._validated = 0
        for message in messages:
            self.add(message)

    def valid(self) -> list[Message]:
        valid, added = self._valid, self._messages[self._validated :]
        for message in _pair_results(added, self.call_ids) if added else ():
            match valid[-1] if valid else None, message:
                case User() as last, User():
                    valid[-1] = join_users(last, message)
                case Assistant() as last, Assistant():
                    parts, usage = (*last.parts, *message.parts), last.usage + message.usage
                    valid[-1] = replace(message, parts=parts, usage=usage)
                case None, Assistant() | Result():
                    valid += [User("msg_opening", (Text(_OPENING),), Trust.PROGRAM), message]
                case _:
                    valid.append(message)
        self._validated = len(self._messages)
        return list(valid)


def unanswered_calls(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Ids and tool names of calls without a result, in order."""
    waiting: dict[str, str] = {}
    for message in messages:
        if isinstance(message, Result):
            waiting.pop(message.call, None)
        elif isinstance(message, Assistant):
            for call in message.calls:
                waiting[call.id] = call.name
    return list(waiting.items())


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Calls of the last answer that have not run yet, in order."""
    for index in reversed(range(len(messages))):
        message = messages[index]
        if isinstance(message, Assistant):
            unanswered = dict(unanswered_calls(messages[index:]))
            return [call for call in message.calls if call.id in unanswered]
        if isinstance(message, User):
            return []
    return []


def has_content(message: User) -> bool:
    return _without_blank_text(message.parts) is not None


def with_unique_call_ids(answer: Assistant, taken: set[str]) -> Assistant:
    """Replace call ids that are missing, too long or in use, and shorten long tool names.

    The final ids are added to `taken`.
    """
    parts = tuple(_unique_id(part, taken) for part in answer.parts)
    same = all(new is old for new, old in zip(parts, answer.parts, strict=True))
    return answer if same else replace(answer, parts=parts)


def _unique_id(part: Text | Reasoning | ToolCall, taken: set[str]) -> Text | Reasoning | ToolCall:
    if not isinstance(part, ToolCall):
        return part
    own = base = (part.id if len(part.id) <= MAX_IDENTIFIER else part.id[:_ID_PREFIX]) or "call"
    number = 2
    while own in taken:
        own = f"{base[:_ID_PREFIX]}_{number}"
        number += 1
    taken.add(own)
    if own == part.id and len(part.name) <= MAX_IDENTIFIER:
        return part
    return replace(part, id=own, name=part.name[:MAX_IDENTIFIER])


def _pair_results(messages: Sequence[Message], taken: set[str]) -> Iterator[Message]:
    """Put each result after its call; drop empty messages and results without a call."""
    has_results = any(isinstance(message, Result) for message in messages)
    results = _results_by_position(messages) if has_results else {}
    for index, message in enumerate(messages):
        match message:
            case User():
                if (parts := _without_blank_text(message.parts)) is not None:
                    yield message if parts is message.parts else replace(message, parts=parts)
            case Assistant():
                yield from _answer_with_results(message, index, results, taken)
            case Result():
                pass


def _answer_with_results(
    message: Assistant, index: int, results: dict[_CallPosition, Result], taken: set[str]
) -> Iterator[Message]:
    answer = with_unique_call_ids(_sanitized_answer(message), taken)
    if all(isinstance(part, Reasoning) for part in answer.parts):
        return
    yield answer
    for number, call in enumerate(answer.calls):
        missing = Result(f"{call.id}_lost", call.id, (Text(INTERRUPTED),), failed=True)
        yield _result_for_call(results.get((index, number), missing), call)


def _results_by_position(messages: Sequence[Message]) -> dict[_CallPosition, Result]:
    """Match results to calls, even if ids repeat or the order is lost."""
    found: dict[_CallPosition, Result] = {}
    positions: dict[str, list[_CallPosition]] = {}
    orphans: dict[str, Result] = {}
    waiting: dict[str, list[_CallPosition]] = {}
    for index, message in enumerate(messages):
        if isinstance(message, Assistant):
            current: dict[str, list[_CallPosition]] = {}
            for number, call in enumerate(message.calls):
                current.setdefault(call.id, []).append((index, number))
                positions.setdefault(call.id, []).append((index, number))
            waiting.update(current)
        elif isinstance(message, Result):
            if candidates := waiting.get(message.call):
                found[candidates.pop(0)] = message
            elif message.call not in positions:
                orphans.setdefault(message.call, message)
    for call, result in orphans.items():
        if len(positions.get(call, ())) == 1:
            found.setdefault(positions[call][0], result)
    return found


def _without_blank_text(parts: tuple[Text | Media, ...]) -> tuple[Text | Media, ...] | None:
    """The parts without blank text; None if nothing is left."""
    kept = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip())
    if not kept:
        return None
    return parts if len(kept) == len(parts) else kept


def _sanitized_answer(answer: Assistant) -> Assistant:
    """The answer without blank text, its calls made acceptable to providers."""
    parts = tuple(
        _sanitized_call(part) if isinstance(part, ToolCall) else part
        for part in answer.parts
        if not isinstance(part, Text) or part.text.strip()
    )
    same = len(parts) == len(answer.parts) and all(
        new is old for new, old in zip(parts, answer.parts, strict=True)
    )
    return answer if same else replace(answer, parts=parts)


def _sanitized_call(call: ToolCall) -> ToolCall:
    """Fix invented names and arguments that are not an object, which providers reject."""
    name, args = call.name, call.args
    if not _NAME.fullmatch(name):
        name = _INVALID_CHARACTER.sub("_", name[:MAX_IDENTIFIER]) or "unnamed"
    if not is_json_object(args):
        args = Raw(b"{}")
    unchanged = name is call.name and args is call.args
    return call if unchanged else replace(call, name=name, args=args)


def is_json_object(args: Raw) -> bool:
    """Whether these JSON bytes are an object, as the arguments of a call must be."""
    return bytes(args).lstrip()[:1] == b"{"


def _result_for_call(result: Result, call: ToolCall) -> Result:
    parts = _without_blank_text(result.parts) or (Text(NO_OUTPUT),)
    if parts is result.parts and result.call == call.id:
        return result
    return replace(result, parts=parts, call=call.id)


def join_users(first: User, second: User) -> User:
    """Join adjacent texts with a blank line, because some providers join them without one."""
    left, right = first.parts[-1], second.parts[0]
    trust = max(first.trust, second.trust, key=_TRUST_ORDER.index)
    if isinstance(left, Text) and isinstance(right, Text):
        joined = Text(f"{left.text}\n\n{right.text}")
        return User(first.id, (*first.parts[:-1], joined, *second.parts[1:]), trust)
    return User(first.id, (*first.parts, *second.parts), trust)


CHARACTERS_PER_TOKEN = 4
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


@lru_cache(maxsize=64)
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
            size += _IMAGE_TOKENS * CHARACTERS_PER_TOKEN
        elif isinstance(part, ToolCall):
            size += len(part.name) + len(bytes(part.args))
        else:
            size += len(part.text)
    return _MESSAGE_TOKENS + size // CHARACTERS_PER_TOKEN


def total_tokens(messages: Iterable[Message]) -> int:
    return sum(map(message_tokens, messages))


def request_tokens(system: str, specs: Sequence[ToolSpec], messages: Sequence[Message]) -> int:
    tools = sum(_MESSAGE_TOKENS + spec.characters // CHARACTERS_PER_TOKEN for spec in specs)
    tokens = len(system) // CHARACTERS_PER_TOKEN + tools
    return tokens + total_tokens(messages) if messages else tokens
