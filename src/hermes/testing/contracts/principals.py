"""Contract of access in a store: a principal sees only its own sessions, the owner all."""

import pytest

from hermes.ports.store import AppendMessage, OpenSession, RecordUsage, Store
from hermes.schema.errors import NotFound
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import session, user_message

PRINCIPALS = (OWNER, "telegram:7", "telegram:77")


async def populate(store: Store, clock: FakeClock) -> None:
    """Write one session per principal, the owner's last."""
    for number, principal in enumerate(reversed(PRINCIPALS)):
        name = f"session-{number}"
        await store.commit(
            OpenSession(session(clock, name, principal=principal, title=f"title {principal}")),
            AppendMessage(name, "r", user_message(f"the mango of {principal} 芒果"), clock.now()),
            RecordUsage(name, "r", f"model {principal}", "p", Usage(1), 1.0, clock.now()),
        )
        await clock.advance(1)


class PrincipalsContract:
    @pytest.mark.parametrize("who", PRINCIPALS[1:])
    async def test_principal_sees_only_own_sessions(
        self, store: Store, clock: FakeClock, who: str
    ) -> None:
        await populate(store, clock)
        archive = store.archive_for(who)
        (mine,) = await archive.list(SessionFilter())
        assert mine.session.principal == who
        latest = await archive.latest()
        assert latest is not None
        assert latest.principal == who
        for query in ("mango", "ang", "mango of", "芒果", "芒", '"mango"'):
            assert {hit.session.principal for hit in await archive.search(query)} == {who}
        assert [use.model for use in await archive.usage()] == [f"model {who}"]
        assert (await archive.find("session-")).principal == who

    @pytest.mark.parametrize("who", PRINCIPALS[1:])
    async def test_sessions_of_other_principals_are_not_found(
        self, store: Store, clock: FakeClock, who: str
    ) -> None:
        await populate(store, clock)
        archive = store.archive_for(who)
        theirs = [
            row.session
            for row in await store.archive_for(OWNER).list(SessionFilter())
            if row.session.principal != who
        ]
        assert len(theirs) == 2
        for other in theirs:
            with pytest.raises(NotFound):
                await archive.get(other.id)
            for name in (other.id, other.title):
                with pytest.raises(NotFound):
                    await archive.find(name)
            assert list(await archive.messages(other.id)) == []
            assert list(await archive.usage(other.id)) == []
        assert await archive.delete([other.id for other in theirs]) == 0
        assert len(await store.archive_for(OWNER).list(SessionFilter())) == 3

    async def test_owner_sees_all_sessions(self, store: Store, clock: FakeClock) -> None:
        await populate(store, clock)
        archive = store.archive_for(OWNER)
        assert len(await archive.list(SessionFilter())) == 3
        assert len(await archive.search("mango")) == 3
        assert len(await archive.usage()) == 3
        assert await archive.delete([f"session-{number}" for number in range(3)]) == 3

    async def test_unknown_principal_sees_nothing(self, store: Store, clock: FakeClock) -> None:
        await populate(store, clock)
        for principal in ("", "telegram", "telegram:777", "OWNER", "%"):
            archive = store.archive_for(principal)
            assert await archive.latest() is None
            assert list(await archive.list(SessionFilter())) == []
            assert list(await archive.search("mango")) == []
            assert list(await archive.search("ango")) == []
            assert list(await archive.usage()) == []
