"""Review sessions are hidden unless asked for."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from hermes.learning.provenance import REVIEW_SOURCE
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.messages import Text, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[SqliteStore]:
    clock = FakeClock()
    async with open_memory_store(clock) as opened:
        for name, source in (("talk", "cli"), ("looked-back", REVIEW_SOURCE)):
            await clock.advance(60)
            session = Session(id=name, started_at=clock.now(), source=source)
            message = User(f"m-{name}", (Text("The teapot is in the kitchen."),))
            await opened.commit(
                OpenSession(session), AppendMessage(name, "r", message, clock.now())
            )
        yield opened


async def listed(store: SqliteStore, where: SessionFilter) -> list[str]:
    return [one.session.id for one in await store.archive_for(OWNER).list(where)]


async def test_review_sessions_are_listed_only_on_request(store: SqliteStore) -> None:
    assert await listed(store, SessionFilter()) == ["talk"]
    assert await listed(store, SessionFilter(source="cli")) == ["talk"]
    assert await listed(store, SessionFilter(source=REVIEW_SOURCE)) == ["looked-back"]
    assert await listed(store, SessionFilter(reviews=True)) == ["looked-back", "talk"]


async def test_review_session_is_never_resumed(store: SqliteStore) -> None:
    latest = await store.archive_for(OWNER).latest()
    assert latest is not None
    assert latest.id == "talk"
    own = await store.archive_for(OWNER).latest(REVIEW_SOURCE)
    assert own is not None
    assert own.id == "looked-back"


@pytest.mark.parametrize("query", ["teapot", "eapo", "kitchen*", '"teapot is"', "."])
async def test_review_sessions_are_not_searched(store: SqliteStore, query: str) -> None:
    archive = store.archive_for(OWNER)
    for found in (
        (await archive.search(query)).hits,
        (await archive.search_by_meaning(query)).hits,
    ):
        assert {hit.session.id for hit in found} == {"talk"}


async def test_review_session_is_found_by_its_id(store: SqliteStore) -> None:
    assert (await store.archive_for(OWNER).find("looked-back")).source == REVIEW_SOURCE
