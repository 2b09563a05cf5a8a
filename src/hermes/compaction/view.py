"""The compacted view of a conversation: a summary in place of older messages.

The transcript is unchanged. A view refers to messages by id; if its first message is gone, it is
ignored and the whole transcript is visible again.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.provenance import SUMMARY_ID, UNTRUSTED_SUMMARY_ID
from hermes.compaction.cut_points import Cut
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
    messages: Sequence[Message], cut: Cut, summary: str, *, strange: bool = False
) -> CompactedView:
    def ids(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(messages[number].id for number in numbers)

    whole = messages[cut.whole].id if cut.whole < len(messages) else ""
    return CompactedView(
        first=messages[cut.start].id,
        summary=summary,
        head=ids(range(cut.head)),
        states=ids(cut.states),
        carried=ids(cut.carried),
        whole=whole,
        strange=strange,
    )


def apply_view(view: CompactedView, messages: Sequence[Message]) -> list[Message] | None:
    """The visible messages; None if the view does not fit the messages."""
    indexes = {message.id: index for index, message in enumerate(messages)}
    start = indexes.get(view.first)
    if start is None:
        return None
    names = call_names(messages)
    whole = max(indexes.get(view.whole, start), start)
    earlier = messages[:start]
    head = prune_results(
        [messages[indexes[one]] for one in view.head if indexes.get(one, start) < start]
    )
    kept = [messages[indexes[one]] for one in view.carried if indexes.get(one, start) < start]
    prefix = UNTRUSTED_SUMMARY_ID if view.strange else SUMMARY_ID
    summary = User(f"{prefix}{view.first}", (Text(view.summary),), Trust.PROGRAM)
    return [
        *head,
        summary,
        *_state_messages(view.states, earlier),
        *kept,
        *prune_results(messages[start:whole], names),
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


MAX_UNPRUNED = 200
"""Results up to this many characters are not shortened."""
_MAX_LINE = 160


def prune_results(
    messages: Sequence[Message], names: dict[str, str] | None = None
) -> list[Message]:
    """Shorten long results to a line. Short ones stay the same objects."""
    known = call_names(messages) if names is None else names
    return [_prune_result(one, known) if isinstance(one, Result) else one for one in messages]


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """Tool names by call id."""
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
