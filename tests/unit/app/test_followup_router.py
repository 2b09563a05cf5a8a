"""Sessions with pending follow-ups are remembered, up to a limit."""

import asyncio

from hermes.app.followup_router import MAX_SESSIONS, FollowupRouter
from hermes.bus.memory import MemoryBus
from hermes.ports.store import EnqueueItem
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import Scope
from hermes.session.turn_request import inbox_item
from hermes.store.sqlite import SqliteStore


def scope(session: str) -> Scope:
    return Scope("default", session, "run", "/work", source="cli")


async def test_number_of_remembered_sessions_is_limited(store: SqliteStore) -> None:
    router = FollowupRouter(store, MemoryBus())
    for name in ("first", "last"):
        await store.commit(*router.rows(scope(name), f"news of {name}", "It has ended."))
    router.wake(scope("first"))
    assert await router.has_followups("first")
    for number in range(MAX_SESSIONS - 1):
        router.wake(scope(f"session {number}"))
    router.wake(scope("last"))
    assert not await router.has_followups("first")
    assert await router.has_followups("last")


async def test_recently_woken_session_is_kept(store: SqliteStore) -> None:
    router = FollowupRouter(store, MemoryBus())
    await store.commit(*router.rows(scope("first"), "news", "It has ended."))
    router.wake(scope("first"))
    for number in range(MAX_SESSIONS - 1):
        router.wake(scope(f"session {number}"))
    router.wake(scope("first"))
    router.wake(scope("one more"))
    assert await router.has_followups("first")


async def test_followup_that_arrives_during_the_check_is_remembered(store: SqliteStore) -> None:
    router = FollowupRouter(store, MemoryBus())
    router.wake(scope("first"))
    check = asyncio.ensure_future(router.has_followups("first"))
    await asyncio.sleep(0)  # it reads the queue now
    router.wake(scope("first"))
    assert not await check
    await store.commit(*router.rows(scope("first"), "news", "It has ended."))
    assert await router.has_followups("first")


async def test_followup_left_by_another_process_is_found(store: SqliteStore) -> None:
    before, router = FollowupRouter(store, MemoryBus()), FollowupRouter(store, MemoryBus())
    await store.commit(*before.rows(scope("first"), "news", "It has ended."))
    assert not await router.has_followups("first")
    await router.find_left("first")
    await router.find_left("other")
    assert await router.has_followups("first")
    assert not await router.has_followups("other")


async def test_message_left_for_the_next_turn_is_not_a_followup(store: SqliteStore) -> None:
    message = User("msg_1", (Text("also the tests"),), Trust.OWNER)
    await store.commit(EnqueueItem(inbox_item(message, "first")))
    router = FollowupRouter(store, MemoryBus())
    await router.find_left("first")
    assert not await router.has_followups("first")
