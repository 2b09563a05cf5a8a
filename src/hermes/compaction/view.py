"""The compacted view of a conversation: where to cut it, and a summary of older messages.

The transcript is unchanged. A view refers to messages by id; if its first message is gone, it is
ignored and the whole transcript is visible again.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.history import message_tokens
from hermes.agent.provenance import SUMMARY_ID, UNTRUSTED_SUMMARY_ID
from hermes.kit.text import one_line
from hermes.schema.messages import (
    Assistant,
    Media,
    Message,
    Result,
    Text,
    Trust,
    Usage,
    User,
    text_of,
)

_TAIL_SLACK = 1.5
"""How far the minimum number of messages may exceed the tail's token budget."""
_MIN_TAIL = 3
MAX_STATE = 8_000
"""Maximum characters of a result kept for its tool."""
MAX_UNPRUNED = 200
"""Results up to this many characters are not shortened."""
_MAX_LINE = 160


class Cut(Struct, frozen=True, kw_only=True):
    """Indexes of messages."""

    head: int  # messages before it are kept
    start: int  # this message and all later ones are kept
    unpruned: int  # this result and all later ones are not shortened
    carried: tuple[int, ...] = ()  # kept, between `head` and `start`
    states: tuple[int, ...] = ()  # results kept for their tools, likewise


class CutLimits(Struct, frozen=True, kw_only=True):
    budget: int  # tokens at the end
    min_messages: int = _MIN_TAIL  # messages at the end
    turns: int | None = None  # instead: everything from the last turns
    head: int = 0  # messages at the start
    summarized: int = 0  # everything before is summarized already


def find_cut(
    messages: Sequence[Message], limits: CutLimits, stateful: Collection[str] = ()
) -> Cut | None:
    """Choose what to keep at both ends; None if there is nothing between them.

    A call and its result are never separated. Kept from the middle are the last question, the last
    reply, and results from which a tool restores its state.
    """
    splits = _splits_pairs(messages)
    first = 0 if limits.summarized else _move_cut(splits, min(limits.head, len(messages)), 1)
    tail_start = _tail_start_of_turns if limits.turns else _tail_start
    start = _move_cut(splits, tail_start(messages, limits), -1)
    if start <= max(first, limits.summarized) or start >= len(messages):
        return None
    last = {_last_index(messages, is_from_person), _last_index(messages, _is_reply)}
    return Cut(
        head=first,
        start=start,
        unpruned=_unpruned_start(messages, start, limits.budget),
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


def _move_cut(splits: Sequence[bool], index: int, step: int) -> int:
    """Move a cut forward or back until it separates no pair."""
    while 0 <= index + step < len(splits) and splits[index]:
        index += step
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


def _tail_start_of_turns(messages: Sequence[Message], limits: CutLimits) -> int:
    turns = limits.turns or 0
    questions = [index for index, message in enumerate(messages) if is_from_person(message)]
    return questions[-turns] if len(questions) >= turns else 0


def _unpruned_start(messages: Sequence[Message], start: int, budget: int) -> int:
    """Return where full results begin: after the last answer, or earlier within the budget."""
    total, index = 0, len(messages)
    answered = max(_last_index(messages, lambda message: isinstance(message, Assistant)), start)
    while index > start:
        total += message_tokens(messages[index - 1])
        if index <= answered and total > budget * _TAIL_SLACK:
            break
        index -= 1
    return index


def _last_index(messages: Sequence[Message], is_wanted: Callable[[Message], bool]) -> int:
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if is_wanted(messages[index])), -1)


def _is_reply(message: Message) -> bool:
    return isinstance(message, Assistant) and not message.calls and bool(message.text.strip())


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


class CompactedView(Struct, frozen=True, kw_only=True):
    """Message ids in order: `head`, the summary, `states`, `carried`, everything from `first`."""

    first: str
    summary: str
    head: tuple[str, ...] = ()
    states: tuple[str, ...] = ()  # results, shown with their calls
    carried: tuple[str, ...] = ()
    whole: str = ""  # results before this message are shortened to a line
    strange: bool = False  # the summary covers untrusted content


class CompactionState(Struct, frozen=True, kw_only=True):
    """What is stored about a session's compactions."""

    view: CompactedView | None = None
    body: str = ""  # the last summary without its frame, updated by the next one
    times: int = 0
    idle: int = 0  # consecutive passes that saved little
    plain: int = 0  # consecutive passes without a model
    cool_until: datetime | None = None  # when to ask a model again after a failure
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0
    before: int = 0
    after: int = 0


def make_view(
    messages: Sequence[Message], cut: Cut, summary: str, *, untrusted: bool = False
) -> CompactedView:
    def ids(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(messages[number].id for number in numbers)

    return CompactedView(
        first=messages[cut.start].id,
        summary=summary,
        head=ids(range(cut.head)),
        states=ids(cut.states),
        carried=ids(cut.carried),
        whole=messages[cut.unpruned].id if cut.unpruned < len(messages) else "",
        strange=untrusted,
    )


def apply_view(view: CompactedView, messages: Sequence[Message]) -> list[Message] | None:
    """The visible messages; None if the view does not fit the messages."""
    indexes = {message.id: index for index, message in enumerate(messages)}
    start = indexes.get(view.first)
    if start is None:
        return None

    def earlier(ids: Sequence[str]) -> list[Message]:
        return [messages[indexes[one]] for one in ids if indexes.get(one, start) < start]

    whole = max(indexes.get(view.whole, start), start)
    prefix = UNTRUSTED_SUMMARY_ID if view.strange else SUMMARY_ID
    summary = User(f"{prefix}{view.first}", (Text(view.summary),), Trust.PROGRAM)
    return [
        *prune_results(earlier(view.head)),
        summary,
        *_state_messages(view.states, messages[:start]),
        *earlier(view.carried),
        *prune_results(messages[start:whole], call_names(messages)),
        *messages[whole:],
    ]


def _state_messages(wanted: Sequence[str], messages: Sequence[Message]) -> list[Message]:
    """Each result after its own call only; other calls of that answer are in the summary."""
    shown: list[Message] = []
    calls: dict[str, tuple[Assistant, int]] = {}
    for message in messages:
        if isinstance(message, Assistant):
            calls.update((part.id, (message, n)) for n, part in enumerate(message.calls))
        elif isinstance(message, Result) and message.id in wanted and message.call in calls:
            answer, number = calls[message.call]
            shown += [replace(answer, parts=(answer.calls[number],), usage=Usage()), message]
    return shown


def newly_omitted(
    view: CompactedView | None, messages: Sequence[Message], cut: Cut
) -> list[Message]:
    """Messages hidden by this cut that no summary covers yet."""
    since = view_start(view, messages)
    shown = messages[: len(view.head)] if view is not None and since else ()
    return [*shown, *messages[max(since, cut.head) : cut.start]]


def view_start(view: CompactedView | None, messages: Sequence[Message]) -> int:
    """The index of the view's first message; 0 if the view does not apply."""
    if view is None:
        return 0
    found = (index for index, message in enumerate(messages) if message.id == view.first)
    return next(found, 0)


def prune_results(
    messages: Sequence[Message], names: dict[str, str] | None = None
) -> list[Message]:
    """Shorten long results to a line. Short ones stay the same objects."""
    known = call_names(messages) if names is None else names
    return [
        _prune_result(message, known) if isinstance(message, Result) else message
        for message in messages
    ]


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    return {
        call.id: call.name
        for message in messages
        if isinstance(message, Assistant)
        for call in message.calls
    }


def result_line(result: Result, tool: str) -> str:
    text = text_of(result)
    images = sum(isinstance(part, Media) for part in result.parts)
    verb = "failed" if result.failed else "answered"
    note = f", {images} picture(s) no longer shown" if images else ""
    return f"[{tool} {verb}: {len(text):,} characters{note}] {one_line(text, _MAX_LINE)}".rstrip()


def _prune_result(result: Result, names: dict[str, str]) -> Result:
    has_media = any(isinstance(part, Media) for part in result.parts)
    if not has_media and len(text_of(result)) <= MAX_UNPRUNED:
        return result
    line = result_line(result, names.get(result.call, "a tool"))
    return replace(result, parts=(Text(line),))
