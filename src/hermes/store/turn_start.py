"""How a turn begins: its lease, what is asked and what waits, as one unit of writes."""

from collections.abc import Sequence
from datetime import datetime

from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    BeginTurnResult,
    EnqueueItem,
    Fence,
    QueueItem,
    Write,
)
from hermes.store.connection import Connection
from hermes.store.leases import acquire_lease, check_fence
from hermes.store.queues import ClaimRequest, claim_items, is_queue_empty
from hermes.store.rows import to_micros
from hermes.store.writes import apply_writes, enqueue_claimed

_INBOX = "inbox"


def begin_turn(
    connection: Connection,
    begin: BeginTurn,
    writes: Sequence[Write],
    now: datetime,
    span: tuple[int, int],
) -> BeginTurnResult:
    """`span` is that of the lease."""
    generation = _hold_lease(connection, begin, span)
    first, own = begin.first, _first_item(begin, writes)
    if first and own and _enqueue_claimed(connection, begin, own.parcel, span):
        rest = [write for write in writes if write is not own]
        apply_writes(connection, [*rest, first], to_micros(now))
        return BeginTurnResult(generation, [own.parcel], appended=True)
    apply_writes(connection, writes, to_micros(now))
    waiting = _claim_waiting(connection, begin, now, span)
    alone = first is not None and _is_only_waiting(first, waiting)
    if first is not None and alone:
        apply_writes(connection, [first], to_micros(now))
    return BeginTurnResult(generation, waiting, alone)


def _hold_lease(connection: Connection, begin: BeginTurn, span: tuple[int, int]) -> int:
    if not begin.generation:
        return acquire_lease(connection, begin.session, begin.holder, span)
    check_fence(connection, Fence(begin.session, begin.generation))
    return begin.generation


def _first_item(begin: BeginTurn, writes: Sequence[Write]) -> EnqueueItem | None:
    """The parcel of what goes into the transcript first, where it is among the writes."""
    first = begin.first
    if first is None or not begin.limit:
        return None
    own = [write for write in writes if isinstance(write, EnqueueItem)]
    place = (_INBOX, begin.session, first.message.id, None)
    is_own = len(own) == 1 and place == _item_position(own[0].parcel)
    return own[0] if is_own else None


def _item_position(parcel: QueueItem) -> tuple[str, str, str, datetime | None]:
    return parcel.lane, parcel.topic, parcel.key, parcel.due


def _enqueue_claimed(
    connection: Connection, begin: BeginTurn, own: QueueItem, span: tuple[int, int]
) -> bool:
    """Most often nothing else waits: then it is claimed as it is posted, in one go."""
    if not is_queue_empty(connection, _INBOX, begin.session):
        return False
    return enqueue_claimed(connection, own, begin.holder, span[0])


def _claim_waiting(
    connection: Connection, begin: BeginTurn, now: datetime, span: tuple[int, int]
) -> list[QueueItem]:
    if not begin.limit:
        return []
    # The session's own lease keeps others away, so the lane's may lapse at once.
    at_once = (span[0], span[0])
    wanted = ClaimRequest(_INBOX, begin.session, begin.holder, to_micros(now), at_once, begin.limit)
    return claim_items(connection, wanted)


def _is_only_waiting(first: AppendMessage, waiting: Sequence[QueueItem]) -> bool:
    return [parcel.key for parcel in waiting] == [first.message.id]
