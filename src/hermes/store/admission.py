"""How a turn begins: its lease, what is asked and what waits, as one unit of writes."""

from collections.abc import Sequence
from datetime import datetime

from hermes.ports.store import Admitted, Append, Entrance, Fence, Parcel, Write
from hermes.store.connection import Connection
from hermes.store.lanes import Claim, claim
from hermes.store.leases import check, take
from hermes.store.rows import micros
from hermes.store.writes import apply


def admit(
    connection: Connection, entrance: Entrance, writes: Sequence[Write], now: datetime
) -> Admitted:
    generation = _held(connection, entrance, now)
    apply(connection, writes, micros(now))
    waiting = _waiting(connection, entrance, now)
    first = entrance.first
    alone = first is not None and _is_all(first, waiting)
    if first is not None and alone:
        apply(connection, [first], micros(now))
    return Admitted(generation, waiting, alone)


def _held(connection: Connection, entrance: Entrance, now: datetime) -> int:
    if not entrance.generation:
        span = (now, now + entrance.ttl)
        return take(connection, entrance.session, entrance.holder, span)
    check(connection, Fence(entrance.session, entrance.generation))
    return entrance.generation


def _waiting(connection: Connection, entrance: Entrance, now: datetime) -> list[Parcel]:
    if not entrance.limit:
        return []
    # The session's own lease keeps others away, so the lane's may lapse at once.
    at = micros(now)
    session, holder = entrance.session, entrance.holder
    return claim(connection, Claim("inbox", session, holder, at, at, entrance.limit))


def _is_all(first: Append, waiting: Sequence[Parcel]) -> bool:
    return [parcel.key for parcel in waiting] == [first.message.id]
