"""Choose where to cut a conversation: what to keep at both ends and what to summarize.

A call and its result are never separated. Kept from the middle are the last question, the last
reply, and results from which a tool restores its state.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from hermes.agent.context_size import message_tokens
from hermes.schema.messages import Assistant, Message, Result, Trust, User, text_of

_TAIL_SLACK = 1.5
"""How far the minimum number of messages may exceed the tail's token budget."""
_MIN_TAIL = 3
MAX_STATE = 8_000
"""Maximum characters of a result kept for its tool."""


class Cut(Struct, frozen=True, kw_only=True):
    """Indexes of messages."""

    head: int  # messages before it are kept
    start: int  # messages from here on are kept
    whole: int  # results from here on are not shortened
    carried: tuple[int, ...] = ()  # kept, between `head` and `start`
    states: tuple[int, ...] = ()  # results kept for their tools, likewise


class CutLimits(Struct, frozen=True, kw_only=True):
    """How much to keep."""

    budget: int  # tokens at the end
    min_messages: int = _MIN_TAIL  # messages at the end
    turns: int | None = None  # instead: everything from the last turns
    head: int = 0  # messages at the start
    summarized: int = 0  # everything before is summarized already


def find_cut(
    messages: Sequence[Message], limits: CutLimits, stateful: Collection[str] = ()
) -> Cut | None:
    """None if there is nothing between the ends."""
    splits = _splits_pairs(messages)
    first = 0 if limits.summarized else _next_cut(splits, min(limits.head, len(messages)))
    start = (
        _tail_start_of_turns(messages, limits.turns)
        if limits.turns
        else _tail_start(messages, limits)
    )
    start = _previous_cut(splits, start)
    if start <= max(first, limits.summarized) or start >= len(messages):
        return None
    last = [index for index in (_last_reply(messages), _last_question(messages)) if index >= 0]
    return Cut(
        head=first,
        start=start,
        whole=_unpruned_start(messages, start, limits.budget),
        carried=tuple(sorted(index for index in last if first <= index < start)),
        states=tuple(_states(messages, first, start, stateful)),
    )


def is_from_person(message: Message) -> bool:
    return isinstance(message, User) and message.trust is not Trust.PROGRAM


def _splits_pairs(messages: Sequence[Message]) -> list[bool]:
    """For each index, whether a cut before it would separate a call from its result."""
    called: dict[str, int] = {}
    edges = [0] * (len(messages) + 2)
    for index, message in enumerate(messages):
        if isinstance(message, Assistant):
            called.update((call.id, index) for call in message.calls)
        elif isinstance(message, Result):
            edges[called.get(message.call, index - 1) + 1] += 1
            edges[index + 1] -= 1
    open_pairs, splits = 0, list[bool]()
    for index in range(len(messages) + 1):
        open_pairs += edges[index]
        splits.append(open_pairs > 0)
    return splits


def _next_cut(splits: Sequence[bool], index: int) -> int:
    while index < len(splits) - 1 and splits[index]:
        index += 1
    return index


def _previous_cut(splits: Sequence[bool], index: int) -> int:
    while index > 0 and splits[index]:
        index -= 1
    return index


def _tail_start(messages: Sequence[Message], limits: CutLimits) -> int:
    total, start = 0, len(messages)
    while start > 0:
        count = len(messages) - start
        total += message_tokens(messages[start - 1])
        fits = total <= limits.budget or (
            count < limits.min_messages and total <= limits.budget * _TAIL_SLACK
        )
        if not fits and count >= min(_MIN_TAIL, limits.min_messages):
            break
        start -= 1
    return start


def _tail_start_of_turns(messages: Sequence[Message], turns: int) -> int:
    questions = [index for index, message in enumerate(messages) if is_from_person(message)]
    return questions[-turns] if len(questions) >= turns else 0


def _unpruned_start(messages: Sequence[Message], start: int, budget: int) -> int:
    """Everything after the last answer; before it as much as the budget allows."""
    total, index = 0, len(messages)
    answered = max(_last_of_type(messages, Assistant), start)
    while index > start:
        total += message_tokens(messages[index - 1])
        if index <= answered and total > budget * _TAIL_SLACK:
            break
        index -= 1
    return index


def _last_of_type(messages: Sequence[Message], kind: type[Message]) -> int:
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if isinstance(messages[index], kind)), -1)


def _last_question(messages: Sequence[Message]) -> int:
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if is_from_person(messages[index])), -1)


def _last_reply(messages: Sequence[Message]) -> int:
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, Assistant) and not message.calls and message.text.strip():
            return index
    return -1


def _states(
    messages: Sequence[Message], first: int, start: int, stateful: Collection[str]
) -> list[int]:
    """The newest successful result of each of these tools, if it lies between the ends."""
    found: dict[str, int] = {}
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        if isinstance(message, Assistant):
            names.update((call.id, call.name) for call in message.calls)
        elif isinstance(message, Result) and not message.failed:
            name = names.get(message.call, "")
            if name in stateful:
                found[name] = index
    return sorted(
        index
        for index in found.values()
        if first <= index < start and len(text_of(messages[index])) <= MAX_STATE
    )
