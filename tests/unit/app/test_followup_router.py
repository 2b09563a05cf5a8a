"""Sessions with pending follow-ups are remembered up to a limit."""

import pytest

from hermes.app.message_sender import MAX_SESSIONS, FollowupRouter
from hermes.bus.memory import MemoryBus
from hermes.schema.scope import Scope
from hermes.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


def scope(session: str) -> Scope:
    return Scope("default", session, "run", "/work", source="cli")


async def test_number_of_remembered_sessions_is_limited(store: SqliteStore) -> None:
    home = FollowupRouter(store, MemoryBus())
    for name in ("first", "last"):
        await store.commit(*home.rows(scope(name), f"news of {name}", "It has ended."))
    home.wake(scope("first"))
    assert await home.has_followups("first")
    for number in range(MAX_SESSIONS - 1):
        home.wake(scope(f"session {number}"))
    home.wake(scope("last"))
    assert not await home.has_followups("first")
    assert await home.has_followups("last")


async def test_recently_woken_session_is_kept(store: SqliteStore) -> None:
    home = FollowupRouter(store, MemoryBus())
    await store.commit(*home.rows(scope("first"), "news", "It has ended."))
    home.wake(scope("first"))
    for number in range(MAX_SESSIONS - 1):
        home.wake(scope(f"session {number}"))
    home.wake(scope("first"))
    home.wake(scope("one more"))
    assert await home.has_followups("first")
