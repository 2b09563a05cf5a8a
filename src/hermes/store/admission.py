"""How a turn begins: its lease, what is asked and what waits, as one unit of writes."""

from collections.abc import Sequence
from datetime import datetime

from hermes.ports.store import Admitted, Append, Entrance, Fence, Parcel, Post, Write
from hermes.store.connection import Connection
from hermes.store.lanes import Claim, claim, is_empty
from hermes.store.leases import check, take
from hermes.store.rows import micros
from hermes.store.writes import apply, post_claimed

_INBOX = "inbox"


def admit(
    connection: Connection,
    entrance: Entrance,
    writes: Sequence[Write],
    now: datetime,
    span: tuple[int, int],
) -> Admitted:
    """`span` is that of the lease."""
    generation = _held(connection, entrance, span)
    first, own = entrance.first, _own(entrance, writes)
    if first and own and _is_alone(connection, entrance, own.parcel, span):
        rest = [write for write in writes if write is not own]
        apply(connection, [*rest, first], micros(now))
        return Admitted(generation, [own.parcel], appended=True)
    apply(connection, writes, micros(now))
    waiting = _waiting(connection, entrance, now, span)
    alone = first is not None and _is_all(first, waiting)
    if first is not None and alone:
        apply(connection, [first], micros(now))
    return Admitted(generation, waiting, alone)


def _held(connection: Connection, entrance: Entrance, span: tuple[int, int]) -> int:
    if not entrance.generation:
        return take(connection, entrance.session, entrance.holder, span)
    check(connection, Fence(entrance.session, entrance.generation))
    return entrance.generation


def _own(entrance: Entrance, writes: Sequence[Write]) -> Post | None:
    """The parcel of what goes into the transcript first, where it is among the writes."""
    first = entrance.first
    if first is None or not entrance.limit:
        return None
    own = [write for write in writes if isinstance(write, Post)]
    place = (_INBOX, entrance.session, first.message.id, None)
    is_own = len(own) == 1 and place == _place(own[0].parcel)
    return own[0] if is_own else None


def _place(parcel: Parcel) -> tuple[str, str, str, datetime | None]:
    return parcel.lane, parcel.topic, parcel.key, parcel.due


def _is_alone(
    connection: Connection, entrance: Entrance, own: Parcel, span: tuple[int, int]
) -> bool:
    """Most often nothing else waits: then it is claimed as it is posted, in one go."""
    if not is_empty(connection, _INBOX, entrance.session):
        return False
    return post_claimed(connection, own, entrance.holder, span[0])


def _waiting(
    connection: Connection, entrance: Entrance, now: datetime, span: tuple[int, int]
) -> list[Parcel]:
    if not entrance.limit:
        return []
    # The session's own lease keeps others away, so the lane's may lapse at once.
    at_once = (span[0], span[0])
    wanted = Claim(_INBOX, entrance.session, entrance.holder, micros(now), at_once, entrance.limit)
    return claim(connection, wanted)


def _is_all(first: Append, waiting: Sequence[Parcel]) -> bool:
    return [parcel.key for parcel in waiting] == [first.message.id]
