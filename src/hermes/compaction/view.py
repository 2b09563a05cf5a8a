"""A long conversation as the model sees it: a summary in place of what lies far back.

The transcript stays as it is. A view names messages of it; where the first one that it shows is
no longer there, it shows nothing of its own, and the whole transcript is seen again.
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
    """Ids of messages: `head`, then the summary, `states` (results with their calls), `carried`,
    then everything from `first` on. Before `whole`, results are one line each. `strange` when
    strangers spoke in what the summary tells of: whoever retells their words, they stay theirs.
    """

    first: str
    summary: str
    head: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    whole: str = ""
    strange: bool = False


class CompactionState(Struct, frozen=True, kw_only=True):
    """What is known of one session's compressions; it outlives the process.

    `body` is the last summary without its frame, which the next one goes on from.
    `idle` counts passes in a row that saved little, `plain` those that had to do without a
    model; `cool_until` is when a model may be asked again after a failure.
    """

    view: CompactedView | None = None
    body: str = ""
    times: int = 0
    idle: int = 0
    plain: int = 0
    cool_until: datetime | None = None
    calls: int = 0
    usage: Usage = Usage()
    cost: float | None = 0.0
    before: int = 0
    after: int = 0


def make_view(
    messages: Sequence[Message], places: Cut, summary: str, *, strange: bool = False
) -> CompactedView:
    def ids(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(messages[number].id for number in numbers)

    whole = messages[places.whole].id if places.whole < len(messages) else ""
    return CompactedView(
        first=messages[places.start].id,
        summary=summary,
        head=ids(range(places.head)),
        states=ids(places.states),
        carried=ids(places.carried),
        whole=whole,
        strange=strange,
    )


def apply_view(view: CompactedView, messages: Sequence[Message]) -> list[Message] | None:
    """None when what it shows is not there (any more)."""
    places = {message.id: place for place, message in enumerate(messages)}
    start = places.get(view.first)
    if start is None:
        return None
    names = call_names(messages)
    whole = max(places.get(view.whole, start), start)
    earlier = messages[:start]
    lead = prune_results(
        [messages[places[one]] for one in view.head if places.get(one, start) < start]
    )
    kept = [messages[places[one]] for one in view.carried if places.get(one, start) < start]
    mark = UNTRUSTED_SUMMARY_ID if view.strange else SUMMARY_ID
    summary = User(f"{mark}{view.first}", (Text(view.summary),), Trust.PROGRAM)
    return [
        *lead,
        summary,
        *_state_messages(view.states, earlier),
        *kept,
        *prune_results(messages[start:whole], names),
        *messages[whole:],
    ]


def _state_messages(wanted: Sequence[str], messages: Sequence[Message]) -> list[Message]:
    """Each result behind its call alone: what else was called with it is in the summary."""
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
    view: CompactedView | None, messages: Sequence[Message], places: Cut
) -> list[Message]:
    """What no summary tells of yet and is not shown any more after this cut."""
    since = view_start(view, messages)
    shown = messages[: len(view.head)] if view is not None and since else ()
    return [*shown, *messages[max(since, places.head) : places.start]]


def view_start(view: CompactedView | None, messages: Sequence[Message]) -> int:
    """Where the first message stands that the view shows; 0 when it shows nothing."""
    if view is None:
        return 0
    places = (place for place, message in enumerate(messages) if message.id == view.first)
    return next(places, 0)


MAX_UNPRUNED = 200
"""A result of at most so many characters stays as it is."""
_MAX_LINE = 160


def prune_results(
    messages: Sequence[Message], names: dict[str, str] | None = None
) -> list[Message]:
    """The same messages, with every long result as a line. Short ones stay the same objects."""
    known = call_names(messages) if names is None else names
    return [_prune_result(one, known) if isinstance(one, Result) else one for one in messages]


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """The tool of each call, by the call's id."""
    return {
        call.id: call.name
        for message in messages
        if isinstance(message, Assistant)
        for call in message.calls
    }


def result_line(result: Result, tool: str) -> str:
    text = text_of(result)
    pictures = sum(isinstance(part, Media) for part in result.parts)
    said = "failed" if result.failed else "answered"
    shown = f", {pictures} picture(s) no longer shown" if pictures else ""
    return f"[{tool} {said}: {len(text):,} characters{shown}] {one_line(text, _MAX_LINE)}".rstrip()


def _prune_result(result: Result, names: dict[str, str]) -> Result:
    has_media = any(isinstance(part, Media) for part in result.parts)
    if not has_media and len(text_of(result)) <= MAX_UNPRUNED:
        return result
    line = result_line(result, names.get(result.call, "a tool"))
    return replace(result, parts=(Text(line),))
