"""One runner per session: a row with holder, expiry and generation.

`until` is a time of the store's clock (see `workers`). An expiry further ahead than any lease lasts
was written before a reboot, or by a version that stored the time of day.
"""

from datetime import timedelta

from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.process_identity import is_surely_dead
from hermes.ports.store import Fence
from hermes.schema.errors import LeaseLost, SessionBusy
from hermes.store.connection import Connection, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import fetch_number, fetch_number_or_none, fetch_one

_SQL = load_statements("leases")


MAX_LEASE = timedelta(minutes=10)


class _HeldLease(Struct, array_like=True, frozen=True):
    holder: str
    until: int


def lease_span(clock: Clock, ttl: timedelta) -> tuple[int, int]:
    """Now and the expiry, in microseconds of the monotonic clock."""
    now = round(clock.monotonic() * 1e6)
    return now, now + min(ttl, MAX_LEASE) // timedelta(microseconds=1)


class SqliteLeases:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    async def hold(self, session: str, holder: str, ttl: timedelta) -> int:
        span = lease_span(self._clock, ttl)

        def hold(connection: Connection) -> int:
            return acquire_lease(connection, session, holder, span)

        return await self._engine.write(hold, droppable=True)

    async def renew(self, session: str, generation: int, ttl: timedelta) -> bool:
        until = lease_span(self._clock, ttl)[1]
        values = {"session": session, "generation": generation, "until": until}
        return await self._engine.execute(_SQL["renew"], values) > 0

    async def release(self, session: str, generation: int) -> None:
        await self._engine.write(lambda connection: release_lease(connection, session, generation))

    async def held(self, session: str) -> bool:
        now, _ = lease_span(self._clock, MAX_LEASE)
        held = await self._engine.fetch_first(
            _SQL["held"],
            {"session": session},
            _HeldLease,
            lambda lease: _is_held_by_other(lease, "", now),
        )
        return held or False


def acquire_lease(connection: Connection, session: str, holder: str, span: tuple[int, int]) -> int:
    """Return the generation. Raises `SessionBusy` while another live holder has the lease."""
    now, until = span
    values = {
        "session": session,
        "holder": holder,
        "until": until,
        "now": now,
        "latest": latest_expiry(now),
        "gone": "",
    }
    # Most sessions are free, so the holder is only looked up when acquiring fails.
    generation = fetch_number_or_none(connection.execute(_SQL["hold"], values))
    if generation is not None:
        return generation
    held = fetch_one(connection.execute(_SQL["held"], values), _HeldLease)
    if held is not None and _is_held_by_other(held, holder, now):
        raise _session_busy(session, held.holder)
    values["gone"] = "" if held is None else held.holder
    return fetch_number(connection.execute(_SQL["hold"], values))


def release_lease(connection: Connection, session: str, generation: int) -> bool:
    """Return False if it was no longer held."""
    connection.execute(_SQL["release"], {"session": session, "generation": generation})
    return connection.changes() > 0


def check_fence(connection: Connection, fence: Fence) -> None:
    """Accept an expired lease that was not taken over: no one else has written meanwhile."""
    values = {"session": fence.session, "generation": fence.generation}
    if not fetch_number(connection.execute(_SQL["fenced"], values)):
        raise _lease_lost(fence)


def release_fenced(connection: Connection, fence: Fence) -> None:
    """Check and release it in one step, for the last writes of a run."""
    if not release_lease(connection, fence.session, fence.generation):
        raise _lease_lost(fence)


def _lease_lost(fence: Fence) -> LeaseLost:
    return LeaseLost(
        f"This run no longer holds session {fence.session}; nothing was written.",
        hint="The session was taken over or deleted; check it, then try again.",
    )


def _is_held_by_other(held: _HeldLease, holder: str, now: int) -> bool:
    valid = now < held.until <= latest_expiry(now)
    return held.holder not in ("", holder) and valid and not is_surely_dead(held.holder)


def latest_expiry(now: int) -> int:
    """The expiry of the longest lease that is granted now."""
    return now + MAX_LEASE // timedelta(microseconds=1)


def _session_busy(session: str, holder: str) -> SessionBusy:
    match holder.split("/"):
        case [host, _, pid, _, *_]:
            owner = f"process {pid} on {host}"
        case _:
            owner = holder
    return SessionBusy(
        f"Session {session} is being run by {owner}.",
        hint="Wait until its turn has ended, or start a new session.",
    )
