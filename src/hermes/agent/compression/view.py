"""A long conversation as the model sees it: a summary in place of what lies far back.

The transcript stays as it is. A view names messages of it; where the first one that it shows is
no longer there, it shows nothing of its own, and the whole transcript is seen again.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from hermes.agent.compression.cutting import Cut
from hermes.agent.compression.pruning import call_names, pruned
from hermes.schema.messages import Assistant, Message, Result, Text, Trust, Usage, User

SUMMARY = "msg_summary_"
"""How the id of a summary begins; the first message after it follows."""
STRANGE_SUMMARY = f"{SUMMARY}strange_"
"""The same, where others than the person spoke in what it tells of."""


class View(Struct, frozen=True, kw_only=True):
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


class Record(Struct, frozen=True, kw_only=True):
    """What is known of one session's compressions; it outlives the process.

    `body` is the last summary without its frame, which the next one goes on from.
    `idle` counts passes in a row that saved little, `plain` those that had to do without a
    model; `cool_until` is when a model may be asked again after a failure.
    """

    view: View | None = None
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


def view_of(
    messages: Sequence[Message], places: Cut, summary: str, *, strange: bool = False
) -> View:
    def ids(numbers: Sequence[int]) -> tuple[str, ...]:
        return tuple(messages[number].id for number in numbers)

    whole = messages[places.whole].id if places.whole < len(messages) else ""
    return View(
        first=messages[places.start].id,
        summary=summary,
        head=ids(range(places.head)),
        states=ids(places.states),
        carried=ids(places.carried),
        whole=whole,
        strange=strange,
    )


def seen_through(view: View, messages: Sequence[Message]) -> list[Message] | None:
    """None when what it shows is not there (any more)."""
    places = {message.id: place for place, message in enumerate(messages)}
    start = places.get(view.first)
    if start is None:
        return None
    names = call_names(messages)
    whole = max(places.get(view.whole, start), start)
    earlier = messages[:start]
    lead = pruned([messages[places[one]] for one in view.head if places.get(one, start) < start])
    kept = [messages[places[one]] for one in view.carried if places.get(one, start) < start]
    mark = STRANGE_SUMMARY if view.strange else SUMMARY
    summary = User(f"{mark}{view.first}", (Text(view.summary),), Trust.HOUSE)
    return [
        *lead,
        summary,
        *_states(view.states, earlier),
        *kept,
        *pruned(messages[start:whole], names),
        *messages[whole:],
    ]


def _states(wanted: Sequence[str], messages: Sequence[Message]) -> list[Message]:
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


def left_out(view: View | None, messages: Sequence[Message], places: Cut) -> list[Message]:
    """What no summary tells of yet and is not shown any more after this cut."""
    since = place_of(view, messages)
    shown = messages[: len(view.head)] if view is not None and since else ()
    return [*shown, *messages[max(since, places.head) : places.start]]


def place_of(view: View | None, messages: Sequence[Message]) -> int:
    """Where the first message stands that the view shows; 0 when it shows nothing."""
    if view is None:
        return 0
    places = (place for place, message in enumerate(messages) if message.id == view.first)
    return next(places, 0)
