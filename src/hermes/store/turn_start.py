"""Begin a turn as one unit of writes: lease, first message and waiting items."""

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
    first, enqueue = begin.first, _first_item(begin, writes)
    if first and enqueue and _enqueue_claimed(connection, begin, enqueue.item, span):
        rest = [write for write in writes if write is not enqueue]
        apply_writes(connection, [*rest, first], to_micros(now))
        return BeginTurnResult(generation, [enqueue.item], appended=True)
    apply_writes(connection, writes, to_micros(now))
    waiting = _claim_waiting(connection, begin, now, span)
    appended = first is not None and _is_only_waiting(first, waiting)
    if first is not None and appended:
        apply_writes(connection, [first], to_micros(now))
    return BeginTurnResult(generation, waiting, appended)


def _hold_lease(connection: Connection, begin: BeginTurn, span: tuple[int, int]) -> int:
    if not begin.generation:
        return acquire_lease(connection, begin.session, begin.holder, span)
    check_fence(connection, Fence(begin.session, begin.generation))
    return begin.generation


def _first_item(begin: BeginTurn, writes: Sequence[Write]) -> EnqueueItem | None:
    """The queue item of the first message, if it is among the writes."""
    first = begin.first
    if first is None or not begin.limit:
        return None
    enqueues = [write for write in writes if isinstance(write, EnqueueItem)]
    position = (_INBOX, begin.session, first.message.id, None)
    is_own = len(enqueues) == 1 and position == _item_position(enqueues[0].item)
    return enqueues[0] if is_own else None


def _item_position(item: QueueItem) -> tuple[str, str, str, datetime | None]:
    return item.lane, item.topic, item.key, item.due


def _enqueue_claimed(
    connection: Connection, begin: BeginTurn, own: QueueItem, span: tuple[int, int]
) -> bool:
    """Usually nothing else waits: then the item is claimed as it is added."""
    if not is_queue_empty(connection, _INBOX, begin.session):
        return False
    return enqueue_claimed(connection, own, begin.holder, span[0])


def _claim_waiting(
    connection: Connection, begin: BeginTurn, now: datetime, span: tuple[int, int]
) -> list[QueueItem]:
    if not begin.limit:
        return []
    # The session's lease keeps others away, so the claim itself may expire immediately.
    expired = (span[0], span[0])
    wanted = ClaimRequest(_INBOX, begin.session, begin.holder, to_micros(now), expired, begin.limit)
    return claim_items(connection, wanted)


def _is_only_waiting(first: AppendMessage, waiting: Sequence[QueueItem]) -> bool:
    return [item.key for item in waiting] == [first.message.id]
