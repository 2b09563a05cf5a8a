"""Beginning a turn is atomic."""

from datetime import timedelta

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.store import (
    AppendMessage,
    BeginTurn,
    CompleteItem,
    EnqueueItem,
    Fence,
    OpenSession,
    QueueItem,
    ReleaseLease,
    Store,
)
from hermes.schema.errors import LeaseLost, NotFound, SessionBusy
from hermes.schema.messages import User, text_of
from hermes.schema.scope import OWNER
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import assistant_message, session, user_message

TTL = timedelta(seconds=30)
HOLDER = "elsewhere/boot/7/1"
OTHER = "elsewhere/boot/8/1"


def queue_item(message: User) -> QueueItem:
    body = Raw(msgspec.json.encode(message))
    return QueueItem(key=message.id, queue="inbox", topic="s1", body=body)


def begin(
    first: AppendMessage | None = None, generation: int = 0, holder: str = HOLDER
) -> BeginTurn:
    item = queue_item(first.message) if first is not None else None
    return BeginTurn(
        session="s1",
        holder=holder,
        ttl=TTL,
        generation=generation,
        limit=10,
        item=item,
        first=first,
    )


async def texts(store: Store) -> list[str]:
    return [text_of(row.message) for row in await store.archive_for(OWNER).messages("s1")]


async def test_lease_session_item_and_first_message_are_written_together(
    store: Store, clock: FakeClock
) -> None:
    hello = user_message("hello")
    first = AppendMessage("s1", "run_1", hello, clock.now())
    opening = OpenSession(session(clock, "s1"))
    started = await store.begin_turn(begin(first), opening)
    assert started.appended
    assert [one.key for one in started.waiting] == [hello.id]
    assert await texts(store) == ["hello"]
    assert await store.leases.renew("s1", started.generation, TTL)
    with pytest.raises(SessionBusy):
        await store.leases.hold("s1", OTHER, TTL)


async def test_older_items_come_before_a_new_one(store: Store, clock: FakeClock) -> None:
    old, new = user_message("left behind"), user_message("hello")
    await store.queues.put(queue_item(old))
    first = AppendMessage("s1", "run_1", new, clock.now())
    opening = OpenSession(session(clock, "s1"))
    started = await store.begin_turn(begin(first), opening)
    assert not started.appended
    assert [one.key for one in started.waiting] == [old.id, new.id]
    assert await texts(store) == []


async def test_known_item_is_not_appended_again(store: Store, clock: FakeClock) -> None:
    hello = user_message("hello")
    first = AppendMessage("s1", "run_1", hello, clock.now())
    opening = OpenSession(session(clock, "s1"))
    started = await store.begin_turn(begin(first), opening)
    fence = Fence("s1", started.generation)
    await store.commit(CompleteItem(hello.id), ReleaseLease("s1", started.generation), fence=fence)
    again = await store.begin_turn(begin(first))
    assert not again.appended
    assert list(again.waiting) == []
    assert await texts(store) == ["hello"]


async def test_claimed_item_is_free_with_its_session(store: Store, clock: FakeClock) -> None:
    hello = user_message("hello")
    first = AppendMessage("s1", "run_1", hello, clock.now())
    opening = OpenSession(session(clock, "s1"))
    await store.begin_turn(begin(first), opening)
    await clock.advance(31)
    found = await store.begin_turn(begin(holder=OTHER))
    assert [(one.key, one.attempts) for one in found.waiting] == [(hello.id, 1)]


async def test_session_held_by_another_is_unchanged(store: Store, clock: FakeClock) -> None:
    await store.leases.hold("s1", OTHER, TTL)
    hello = user_message("hello")
    with pytest.raises(SessionBusy):
        await store.begin_turn(
            begin(), OpenSession(session(clock, "s1")), EnqueueItem(queue_item(hello))
        )
    with pytest.raises(NotFound):
        await store.archive_for(OWNER).get("s1")
    with pytest.raises(NotFound):
        await store.queues.status(hello.id)


async def test_lost_lease_cannot_begin_a_turn(store: Store, clock: FakeClock) -> None:
    await store.commit(OpenSession(session(clock, "s1")))
    old = await store.leases.hold("s1", HOLDER, TTL)
    await clock.advance(31)
    await store.leases.hold("s1", OTHER, TTL)
    hello = user_message("hello")
    with pytest.raises(LeaseLost):
        await store.begin_turn(begin(generation=old), EnqueueItem(queue_item(hello)))
    with pytest.raises(NotFound):
        await store.queues.status(hello.id)


async def test_existing_lease_is_kept(store: Store, clock: FakeClock) -> None:
    await store.commit(OpenSession(session(clock, "s1")))
    held = await store.leases.hold("s1", HOLDER, TTL)
    assert (await store.begin_turn(begin(generation=held))).generation == held


async def test_release_with_last_writes_frees_the_session(store: Store, clock: FakeClock) -> None:
    opening = OpenSession(session(clock, "s1"))
    generation = (await store.begin_turn(begin(), opening)).generation
    fence = Fence("s1", generation)
    word = AppendMessage("s1", "run_1", assistant_message("bye"), clock.now())
    await store.commit(word, ReleaseLease("s1", generation), fence=fence)
    assert await texts(store) == ["bye"]
    assert await store.leases.hold("s1", OTHER, TTL) == generation + 1
    with pytest.raises(LeaseLost):
        await store.commit(word, fence=fence)


async def test_stale_release_does_not_free_the_new_holder(store: Store, clock: FakeClock) -> None:
    old = await store.leases.hold("s1", HOLDER, TTL)
    await clock.advance(31)
    await store.leases.hold("s1", OTHER, TTL)
    await store.commit(ReleaseLease("s1", old))
    with pytest.raises(SessionBusy):
        await store.leases.hold("s1", HOLDER, TTL)
