"""What ended after its turn is looked for by who may still be there, and forgotten in the end."""

import pytest

from hermes.app.followups import MAX_SESSIONS, FollowupRouter
from hermes.schema.scope import Scope
from hermes.store.sqlite import SqliteStore

pytestmark = pytest.mark.anyio


def scope(session: str) -> Scope:
    return Scope("default", session, "run", "/work", source="cli")


async def test_only_so_many_sessions_are_remembered(store: SqliteStore) -> None:
    home = FollowupRouter(store)
    for name in ("first", "last"):
        await store.commit(*home.rows(scope(name), f"news of {name}", "It has ended."))
    home.wake(scope("first"))
    assert await home.has_followups("first")
    for number in range(MAX_SESSIONS - 1):
        home.wake(scope(f"session {number}"))
    home.wake(scope("last"))
    assert not await home.has_followups("first")
    assert await home.has_followups("last")


async def test_who_was_rung_for_again_is_not_the_first_to_be_forgotten(store: SqliteStore) -> None:
    home = FollowupRouter(store)
    await store.commit(*home.rows(scope("first"), "news", "It has ended."))
    home.wake(scope("first"))
    for number in range(MAX_SESSIONS - 1):
        home.wake(scope(f"session {number}"))
    home.wake(scope("first"))
    home.wake(scope("one more"))
    assert await home.has_followups("first")
