"""Make any history one that every provider accepts: a total function, whatever happened before.

A history that is already valid comes back as the same objects, so that the bytes
sent to the provider, and with them its prompt cache, stay the same.
"""

import re
from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import TypeAlias, overload

from msgspec import Raw
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

INTERRUPTED = "Interrupted before a result was known."
NO_OUTPUT = "(no output)"
_OPENING = "(The earlier part of this conversation is not shown.)"
MAX_IDENTIFIER = 64
"""Characters of a call's id and of a tool's name that providers take back."""
_ID_PREFIX = 48
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")

_TRUST_ORDER = (Trust.PROGRAM, Trust.OWNER, Trust.GUEST, Trust.DATA)
"""What is joined is trusted as little as the least trusted part of it."""

_CallPosition: TypeAlias = tuple[int, int]
"""A call's message and its number among that message's calls."""


def valid_history(messages: Sequence[Message]) -> list[Message]:
    """Every call is followed by its result, nothing is empty, roles alternate, a user begins."""
    return History(messages).valid()


class History(Sequence[Message]):
    """What was said, and its valid form: every request pays only for what is new.

    What is added between two requests must be whole: an answer, then all of its results.
    """

    def __init__(self, past: Sequence[Message] = ()) -> None:
        self.call_ids: set[str] = set()
        self._said: list[Message] = list(past)
        self.size = sum(map(_size, self._said))
        """About how many characters it holds."""
        self._valid: list[Message] = []
        self._done = 0
        self._bytes, self._weighed = 0, 0

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        return self._said[place]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._said)

    def __reversed__(self) -> Iterator[Message]:
        return reversed(self._said)

    def __len__(self) -> int:
        return len(self._said)

    def add(self, message: Message) -> None:
        self._said.append(message)
        self.size += _size(message)

    def begin_again(self, messages: Sequence[Message]) -> None:
        """Hold these instead, for everybody who holds this history."""
        self._said = list(messages)
        self.size = sum(map(_size, self._said))
        self.call_ids = set()
        self._valid = []
        self._done = 0
        self._bytes, self._weighed = 0, 0

    @property
    def held(self) -> int:
        """How many bytes of memory its words take; each message is weighed once."""
        self._bytes += sum(map(_memory_bytes, self._said[self._weighed :]))
        self._weighed = len(self._said)
        return self._bytes

    def valid(self) -> list[Message]:
        if self._done < len(self._said):
            for message in _pair_results(self._said[self._done :], self.call_ids):
                self._take(message)
            self._done = len(self._said)
        return list(self._valid)

    def _take(self, message: Message) -> None:
        last = self._valid[-1] if self._valid else None
        match last, message:
            case User(), User():
                self._valid[-1] = join_users(last, message)
            case Assistant(), Assistant():
                self._valid[-1] = _join_answers(last, message)
            case None, Assistant() | Result():
                opening = User("msg_opening", (Text(_OPENING),), Trust.PROGRAM)
                self._valid += [opening, message]
            case _:
                self._valid.append(message)


def _size(message: Message) -> int:
    return 1 + sum(
        len(bytes(part.args)) if isinstance(part, ToolCall) else len(part.text)
        for part in message.parts
        if not isinstance(part, Media)
    )


def _memory_bytes(message: Message) -> int:
    """In bytes: a character takes up to four, and what only people are shown is held as well."""
    words: list[str | bytes] = []
    for part in message.parts:
        match part:
            case Text(text):
                words.append(text)
            case Reasoning(text, signature):
                words += [text, signature or ""]
            case ToolCall(args=args, broken=broken):
                words += [bytes(args), broken]
            case Media():
                pass
    if isinstance(message, Result):
        words.append(message.shown)
    return sum(map(getsizeof, words))


def unanswered_calls(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Ids and tool names of the calls that never got a result, in order."""
    waiting: dict[str, str] = {}
    for message in messages:
        if isinstance(message, Result):
            waiting.pop(message.call, None)
        elif isinstance(message, Assistant):
            for call in message.calls:
                waiting[call.id] = call.name
    return list(waiting.items())


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Those of the last answer that are still to be made, in order."""
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, Assistant):
            waiting = {call for call, _ in unanswered_calls(messages[place:])}
            return [call for call in message.calls if call.id in waiting]
        if isinstance(message, User):
            return []
    return []


def has_content(message: User) -> bool:
    return _without_blank_text(message.parts) is not None


def with_unique_call_ids(answer: Assistant, taken: set[str]) -> Assistant:
    """Give a new id to each call whose own is missing, too long or in use.

    `taken` learns them all. A name that no tool can have is cut too.
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
    """Put each result behind its call; drop what says nothing or answers nothing."""
    results = _results_by_position(messages)
    for place, message in enumerate(messages):
        match message:
            case User():
                if (parts := _without_blank_text(message.parts)) is not None:
                    yield message if parts is message.parts else replace(message, parts=parts)
            case Assistant():
                yield from _answer_with_results(message, place, results, taken)
            case Result():
                pass


def _answer_with_results(
    message: Assistant, place: int, results: dict[_CallPosition, Result], taken: set[str]
) -> Iterator[Message]:
    answer = with_unique_call_ids(_sanitized_answer(message), taken)
    if all(isinstance(part, Reasoning) for part in answer.parts):
        return
    yield answer
    for number, call in enumerate(answer.calls):
        found = results.get((place, number))
        yield _missing_result(call) if found is None else _result_for_call(found, call)


def _results_by_position(messages: Sequence[Message]) -> dict[_CallPosition, Result]:
    """Which result belongs to which call, also where ids are used again and order is lost."""
    found: dict[_CallPosition, Result] = {}
    asked: dict[str, list[_CallPosition]] = {}
    early: dict[str, Result] = {}
    waiting: dict[str, list[_CallPosition]] = {}
    for place, message in enumerate(messages):
        if isinstance(message, Assistant):
            here: dict[str, list[_CallPosition]] = {}
            for number, call in enumerate(message.calls):
                here.setdefault(call.id, []).append((place, number))
                asked.setdefault(call.id, []).append((place, number))
            waiting.update(here)
        elif isinstance(message, Result):
            if places := waiting.get(message.call):
                found[places.pop(0)] = message
            elif message.call not in asked:
                early.setdefault(message.call, message)
    for call, result in early.items():
        if len(asked.get(call, ())) == 1:
            found.setdefault(asked[call][0], result)
    return found


def _without_blank_text(parts: tuple[Text | Media, ...]) -> tuple[Text | Media, ...] | None:
    """The parts without blank text; None when nothing is left."""
    kept = tuple(part for part in parts if not isinstance(part, Text) or part.text.strip())
    if not kept:
        return None
    return parts if len(kept) == len(parts) else kept


def _sanitized_answer(answer: Assistant) -> Assistant:
    """Without blank text, and with calls that a provider can read."""
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
    """Names that models make up, and arguments that are no object, are refused by providers."""
    named = _NAME.fullmatch(call.name) is not None
    if named and is_json_object(call.args):
        return call
    name = (
        call.name if named else _INVALID_CHARACTER.sub("_", call.name[:MAX_IDENTIFIER]) or "unnamed"
    )
    return replace(call, name=name, args=call.args if is_json_object(call.args) else Raw(b"{}"))


def is_json_object(args: Raw) -> bool:
    """Whether these JSON bytes are an object, as the arguments of a call must be."""
    return bytes(args).lstrip()[:1] == b"{"


def _result_for_call(result: Result, call: ToolCall) -> Result:
    parts = _without_blank_text(result.parts) or (Text(NO_OUTPUT),)
    if parts is result.parts and result.call == call.id:
        return result
    return replace(result, parts=parts, call=call.id)


def _missing_result(call: ToolCall) -> Result:
    return Result(f"{call.id}_lost", call.id, (Text(INTERRUPTED),), failed=True)


def join_users(first: User, second: User) -> User:
    """Neighbouring texts become one, so that no provider runs their words together."""
    left, right = first.parts[-1], second.parts[0]
    trust = max(first.trust, second.trust, key=_TRUST_ORDER.index)
    if isinstance(left, Text) and isinstance(right, Text):
        seam = Text(f"{left.text}\n\n{right.text}")
        return User(first.id, (*first.parts[:-1], seam, *second.parts[1:]), trust)
    return User(first.id, (*first.parts, *second.parts), trust)


def _join_answers(first: Assistant, second: Assistant) -> Assistant:
    return replace(second, parts=(*first.parts, *second.parts), usage=first.usage + second.usage)
