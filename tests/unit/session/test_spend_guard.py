"""Spending limits per session, day and person."""

from datetime import timedelta
from pathlib import Path

from hermes.ports.store import OpenSession, RecordUsage
from hermes.schema.errors import SpendCapReached
from hermes.schema.messages import Usage
from hermes.schema.sessions import Session
from hermes.session.spend_guard import SpendCaps, SpendGuard
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from support.turns import FakeTool, assistant_message, run_scripted_turn, tool_call


async def spend(store: SqliteStore, clock: FakeClock, session: Session, cost: float | None) -> None:
    model = "unknown" if cost is None else "m"
    await store.commit(RecordUsage(session.id, "r", model, "p", Usage(input=1), cost, clock.now()))


async def allows(purse: SpendGuard, session: Session) -> bool:
    check = purse.check_for(session, session.principal)
    assert check is not None
    try:
        await check()
    except SpendCapReached as error:
        return "hermes config set limits." not in error.hint
    return True


async def begun(store: SqliteStore, clock: FakeClock, name: str, who: str = "owner") -> Session:
    session = Session(id=name, started_at=clock.now(), principal=who)
    await store.commit(OpenSession(session))
    return session


async def test_no_check_is_made_without_limits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        session = await begun(store, clock, "s1")
        assert SpendGuard(store, clock, SpendCaps()).check_for(session, "owner") is None


async def test_session_limit_is_enforced(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        one, other = await begun(store, clock, "s1"), await begun(store, clock, "s2")
        purse = SpendGuard(store, clock, SpendCaps(session=1.0))
        await spend(store, clock, one, 0.6)
        await spend(store, clock, one, None)
        assert await allows(purse, one)
        await spend(store, clock, one, 0.6)
        assert not await allows(purse, one)
        assert await allows(purse, other)


async def test_daily_limit_is_enforced_and_resets(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        one, other = await begun(store, clock, "s1"), await begun(store, clock, "s2", "bob")
        await spend(store, clock, one, 5.0)
        purse = SpendGuard(store, clock, SpendCaps(day=1.0))
        assert await allows(purse, one)
        await spend(store, clock, other, 1.0)
        assert not await allows(purse, one)
        assert not await allows(SpendGuard(store, clock, SpendCaps(day=1.0)), other)
        await clock.advance(timedelta(days=1).total_seconds())
        assert await allows(purse, one)


async def test_limit_per_person_is_enforced(tmp_path: Path) -> None:
    clock = FakeClock()
    async with open_memory_store(clock) as store:
        ann, bob = await begun(store, clock, "s1", "ann"), await begun(store, clock, "s2", "bob")
        purse = SpendGuard(store, clock, SpendCaps(principal=1.0))
        assert await allows(purse, ann)
        assert await allows(purse, bob)
        await spend(store, clock, bob, 2.0)
        assert await allows(purse, ann)
        assert not await allows(purse, bob)


async def test_turn_ends_at_the_limit(tmp_path: Path) -> None:
    """Between two requests of one turn, too."""
    left = [True, False]

    async def allowed() -> None:
        if not left.pop(0):
            raise SpendCapReached("The limit is reached.")

    looked = assistant_message(tool_call("look"))
    model, recorder = await run_scripted_turn(
        [looked], tools=[FakeTool("look")], check_spend=allowed
    )
    assert recorder.ended.code == "spend_cap"
    assert len(model.requests) == 1
    assert len(recorder.results) == 1
