"""Where a conversation is cut: what stays as it is at both ends, and what is told in short.

A call and its result are never parted. What must not be lost in the middle is carried over: the
last question of a person, the last reply, and results in which a tool finds its state again.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from hermes.agent.context_size import message_tokens
from hermes.schema.messages import Assistant, Message, Result, Trust, User, text_of

_TAIL_SLACK = 1.5
"""By how much the least number of messages may exceed the budget of the tail."""
_MIN_TAIL = 3
MAX_STATE = 8_000
"""Characters of a result that is carried over for its tool."""


class Cut(Struct, frozen=True, kw_only=True):
    """Places in the messages that were cut. `head` stays before, `start` and what follows after.

    From `whole` on results are not shortened; `carried` and `states` (results) lie between.
    """

    head: int
    start: int
    whole: int
    carried: tuple[int, ...] = ()
    states: tuple[int, ...] = ()


class CutLimits(Struct, frozen=True, kw_only=True):
    """How much stays. At the end: tokens, and messages; or all from the last `turns` on.

    Before `since` everything is told in short already; else `head` messages stay there.
    """

    budget: int
    least: int = _MIN_TAIL
    turns: int | None = None
    head: int = 0
    since: int = 0


def find_cut(
    messages: Sequence[Message], ends: CutLimits, stateful: Collection[str] = ()
) -> Cut | None:
    """None when there is nothing between the ends."""
    parted = _splits_pairs(messages)
    first = 0 if ends.since else _next_cut(parted, min(ends.head, len(messages)))
    start = (
        _tail_start_of_turns(messages, ends.turns) if ends.turns else _tail_start(messages, ends)
    )
    start = _previous_cut(parted, start)
    if start <= max(first, ends.since) or start >= len(messages):
        return None
    last = [place for place in (_last_reply(messages), _last_question(messages)) if place >= 0]
    return Cut(
        head=first,
        start=start,
        whole=_unpruned_start(messages, start, ends.budget),
        carried=tuple(sorted(place for place in last if first <= place < start)),
        states=tuple(_states(messages, first, start, stateful)),
    )


def is_from_person(message: Message) -> bool:
    """Whether a person stands behind it."""
    return isinstance(message, User) and message.trust is not Trust.PROGRAM


def _splits_pairs(messages: Sequence[Message]) -> list[bool]:
    """For each place, whether a cut before it would part a call from its result."""
    called: dict[str, int] = {}
    edges = [0] * (len(messages) + 2)
    for place, message in enumerate(messages):
        if isinstance(message, Assistant):
            called.update((call.id, place) for call in message.calls)
        elif isinstance(message, Result):
            edges[called.get(message.call, place - 1) + 1] += 1
            edges[place + 1] -= 1
    open_pairs, parted = 0, list[bool]()
    for place in range(len(messages) + 1):
        open_pairs += edges[place]
        parted.append(open_pairs > 0)
    return parted


def _next_cut(parted: Sequence[bool], place: int) -> int:
    while place < len(parted) - 1 and parted[place]:
        place += 1
    return place


def _previous_cut(parted: Sequence[bool], place: int) -> int:
    while place > 0 and parted[place]:
        place -= 1
    return place


def _tail_start(messages: Sequence[Message], ends: CutLimits) -> int:
    total, start = 0, len(messages)
    while start > 0:
        count = len(messages) - start
        total += message_tokens(messages[start - 1])
        fits = total <= ends.budget or (count < ends.least and total <= ends.budget * _TAIL_SLACK)
        if not fits and count >= min(_MIN_TAIL, ends.least):
            break
        start -= 1
    return start


def _tail_start_of_turns(messages: Sequence[Message], turns: int) -> int:
    questions = [place for place, message in enumerate(messages) if is_from_person(message)]
    return questions[-turns] if len(questions) >= turns else 0


def _unpruned_start(messages: Sequence[Message], start: int, budget: int) -> int:
    """Behind the last answer everything is whole; before it as much as the budget has room for."""
    total, place = 0, len(messages)
    answered = max(_last_of_type(messages, Assistant), start)
    while place > start:
        total += message_tokens(messages[place - 1])
        if place <= answered and total > budget * _TAIL_SLACK:
            break
        place -= 1
    return place


def _last_of_type(messages: Sequence[Message], kind: type[Message]) -> int:
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if isinstance(messages[place], kind)), -1)


def _last_question(messages: Sequence[Message]) -> int:
    places = range(len(messages) - 1, -1, -1)
    return next((place for place in places if is_from_person(messages[place])), -1)


def _last_reply(messages: Sequence[Message]) -> int:
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if isinstance(message, Assistant) and not message.calls and message.text.strip():
            return place
    return -1


def _states(
    messages: Sequence[Message], first: int, start: int, stateful: Collection[str]
) -> list[int]:
    """The newest good result of each of these tools, when it lies between the ends."""
    found: dict[str, int] = {}
    names: dict[str, str] = {}
    for place, message in enumerate(messages):
        if isinstance(message, Assistant):
            names.update((call.id, call.name) for call in message.calls)
        elif isinstance(message, Result) and not message.failed:
            name = names.get(message.call, "")
            if name in stateful:
                found[name] = place
    return sorted(
        place
        for place in found.values()
        if first <= place < start and len(text_of(messages[place])) <= MAX_STATE
    )
