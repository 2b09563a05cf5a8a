"""Contract of stores.

A driver's test module subclasses `StoreContract` and provides the fixtures `store` (an empty,
open store) and `clock` (the `FakeClock` of that store).
"""

from datetime import timedelta
from functools import partial

import msgspec
import pytest

from hermes.ports.store import (
    AppendMessage,
    ChangeSession,
    Intent,
    OpenSession,
    RecordIntent,
    RecordUsage,
    Store,
)
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.messages import Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import DailyUsage, ModelUsage, SessionChange, SessionFilter
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.jobs import JobsContract
from hermes.testing.contracts.journal import JournalContract, ResponsesContract
from hermes.testing.contracts.leases import FencesContract, LeasesContract
from hermes.testing.contracts.maintenance import MaintenanceContract
from hermes.testing.contracts.queues import QueuesContract
from hermes.testing.contracts.samples import (
    append,
    calling_message,
    result_message,
    session,
    user_message,
)
from hermes.testing.contracts.search import PrincipalsContract, SearchContract
from hermes.testing.contracts.transcripts import IntentsContract, TranscriptContract

EVERYTHING = SessionFilter()


async def listed_ids(
    store: Store, where: SessionFilter, limit: int = 50, offset: int = 0
) -> list[str]:
    rows = await store.archive_for(OWNER).list(where, limit, offset)
    return [row.session.id for row in rows]


class SessionsContract:
    async def test_opened_session_is_read_back_unchanged(
        self, store: Store, clock: FakeClock
    ) -> None:
        parent = session(clock, "s0")
        child = session(
            clock,
            "s1",
            source="telegram",
            principal="telegram:7",
            key="agent:main:telegram:dm:7",
            title="Größe 東京",
            model="m",
            provider="p",
            system="You are\x00 helpful.\n",
            parent="s0",
            cwd="/home/u",
            ended_at=clock.now() + timedelta(microseconds=1),
            end_reason="reset",
            effort="high",
            personality="pirate",
        )
        await store.commit(OpenSession(parent), OpenSession(child))
        assert await store.archive_for(OWNER).get("s1") == child

    async def test_opening_a_session_twice_is_an_error(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1", model="first")))
        with pytest.raises(StoreError):
            await store.commit(OpenSession(session(clock, "s1", model="second")))
        assert (await store.archive_for(OWNER).get("s1")).model == "first"

    async def test_opening_with_an_unknown_parent_is_an_error(
        self, store: Store, clock: FakeClock
    ) -> None:
        with pytest.raises(NotFound):
            await store.commit(OpenSession(session(clock, "s1", parent="unknown")))

    async def test_change_sets_only_the_named_fields(self, store: Store, clock: FakeClock) -> None:
        before = session(clock, "s1", model="m", system="old", cwd="/a")
        await store.commit(OpenSession(before))
        change = SessionChange(title="named", system="new", ended_at=clock.now())
        await store.commit(ChangeSession("s1", change))
        archive = store.archive_for(OWNER)
        expected = msgspec.structs.replace(
            before, title="named", system="new", ended_at=clock.now()
        )
        assert await archive.get("s1") == expected
        await store.commit(ChangeSession("s1", SessionChange(ended_at=None)))
        assert (await archive.get("s1")).ended_at is None
        await store.commit(ChangeSession("s1", SessionChange(effort="low", personality="none")))
        chosen = await archive.get("s1")
        assert (chosen.effort, chosen.personality) == ("low", "none")
        await store.commit(ChangeSession("s1", SessionChange()))
        assert (await archive.get("s1")).title == "named"

    async def test_session_given_a_key_is_active_under_that_key(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        await clock.advance(60)
        await store.commit(ChangeSession("s1", SessionChange(key="k")))
        archive = store.archive_for(OWNER)
        found = await archive.by_key("k")
        assert found is not None
        assert found.id == "s1"
        assert await archive.active_at("s1") == clock.now()
        await store.commit(ChangeSession("s1", SessionChange(key="")))
        assert await archive.by_key("k") is None

    async def test_changing_an_unknown_session_is_an_error(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.commit(ChangeSession("unknown", SessionChange(cwd="/")))
        with pytest.raises(NotFound):
            await store.commit(ChangeSession("unknown", SessionChange()))

    async def test_title_is_unique_per_principal(self, store: Store, clock: FakeClock) -> None:
        await store.commit(OpenSession(session(clock, "s1", title="plans")))
        with pytest.raises(StoreError, match="plans"):
            await store.commit(OpenSession(session(clock, "s2", title="plans")))
        await store.commit(OpenSession(session(clock, "s2")), OpenSession(session(clock, "s3")))
        with pytest.raises(StoreError, match="plans"):
            await store.commit(ChangeSession("s2", SessionChange(title="plans")))
        await store.commit(OpenSession(session(clock, "s4", title="plans", principal="guest")))
        assert (await store.archive_for("guest").find("plans")).id == "s4"
        assert (await store.archive_for(OWNER).find("plans")).id == "s1"

    async def test_session_is_found_by_id_title_or_unique_prefix(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(
            OpenSession(session(clock, "20260131_120000_aaa111", title="20260131")),
            OpenSession(session(clock, "20260131_120000_bbb222")),
            OpenSession(session(clock, "20260131_120000_b%_333")),
        )
        archive = store.archive_for(OWNER)
        for name in ("20260131_120000_aaa111", "20260131", "20260131_120000_a"):
            assert (await archive.find(name)).id == "20260131_120000_aaa111", name
        assert (await archive.find("20260131_120000_b%")).id == "20260131_120000_b%_333"
        for name in ("20260131_120000_b", "2026", "_", "", "nothing"):
            with pytest.raises(NotFound):
                await archive.find(name)
        with pytest.raises(NotFound):
            await archive.get("20260131")

    async def test_latest_is_the_most_recently_active_session(
        self, store: Store, clock: FakeClock
    ) -> None:
        archive = store.archive_for(OWNER)
        assert await archive.latest() is None
        await store.commit(OpenSession(session(clock, "s1")))
        await clock.advance(60)
        await store.commit(OpenSession(session(clock, "s2", source="telegram")))
        latest = await archive.latest()
        assert latest is not None
        assert latest.id == "s2"
        await clock.advance(60)
        await store.commit(append(clock, "again"))
        latest = await archive.latest()
        assert latest is not None
        assert latest.id == "s1"
        by_source = await archive.latest("telegram")
        assert by_source is not None
        assert by_source.id == "s2"
        assert await archive.latest("nowhere") is None

    async def test_by_key_returns_the_newest_session_not_ended(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s0")))
        assert await store.archive_for(OWNER).by_key("k") is None
        assert await store.archive_for(OWNER).by_key("") is None
        for name in ("s1", "s2"):
            await store.commit(OpenSession(session(clock, name, key="k", principal="guest")))
        await clock.advance(60)
        await store.commit(OpenSession(session(clock, "s3", key="k", principal="guest")))
        for principal in (OWNER, "guest"):
            found = await store.archive_for(principal).by_key("k")
            assert found is not None
            assert found.id == "s3"
        assert await store.archive_for("eve").by_key("k") is None
        await store.commit(ChangeSession("s3", SessionChange(ended_at=clock.now())))
        found = await store.archive_for(OWNER).by_key("k")
        assert found is not None
        assert found.id == "s2"

    async def test_activity_covers_only_own_sessions(self, store: Store, clock: FakeClock) -> None:
        begun = clock.now()
        await store.commit(
            OpenSession(session(clock, "s1", principal="ann")),
            OpenSession(session(clock, "s2", principal="bob")),
        )
        own, everything = store.archive_for("ann"), store.archive_for(OWNER)
        assert await own.active_at("s1") == begun
        assert list(await own.turns(begun)) == []
        for run in ("r1", "r2"):
            await clock.advance(60)
            await store.commit(AppendMessage("s1", run, user_message(f"one of {run}"), clock.now()))
            await store.commit(
                AppendMessage("s2", f"b{run}", user_message(f"two of {run}"), clock.now())
            )
            await store.commit(
                AppendMessage("s1", run, user_message(f"more of {run}"), clock.now())
            )
        assert await own.active_at("s1") == clock.now()
        assert [(at - begun).total_seconds() for at in await own.turns(begun)] == [60, 120]
        assert [(at - begun).total_seconds() for at in await own.turns(clock.now())] == [120]
        assert len(await everything.turns(begun)) == 4
        with pytest.raises(NotFound):
            await own.active_at("s2")

    async def test_deleting_a_session_deletes_all_its_data(
        self, store: Store, clock: FakeClock
    ) -> None:
        archive = store.archive_for(OWNER)
        await store.commit(
            OpenSession(session(clock, "s1", title="t")),
            OpenSession(session(clock, "s2", parent="s1")),
            append(clock, "remember the kumquat"),
            RecordIntent(
                Intent(
                    call="c", session="s1", run="r", tool="t", effect=Effect.OUTSIDE, at=clock.now()
                )
            ),
            RecordUsage("s1", "r", "m", "p", Usage(input=1), 0.5, clock.now()),
        )
        assert len((await archive.search("kumquat")).hits) == 1
        assert await archive.delete(["s1", "s1", "unknown"]) == 1
        with pytest.raises(NotFound):
            await archive.get("s1")
        assert (await archive.get("s2")).parent is None
        assert list(await archive.messages("s1")) == []
        assert list((await archive.search("kumquat")).hits) == []
        assert list(await archive.usage()) == []
        assert list(await store.open_intents("s1")) == []
        await store.commit(OpenSession(session(clock, "s1", title="t")))
        await store.commit(append(clock, "a new kumquat"))
        assert [hit.seq for hit in (await archive.search("kumquat")).hits] == [1]
        assert await archive.delete([]) == 0


class SummariesContract:
    async def test_summary_totals_messages_usage_and_cost(
        self, store: Store, clock: FakeClock
    ) -> None:
        opened = session(clock, "s1")
        await store.commit(OpenSession(opened))
        await clock.advance(5)
        await store.commit(
            append(clock, "please  look\nat this"),
            AppendMessage("s1", "r", calling_message("ls", "cat"), clock.now()),
            AppendMessage("s1", "r", result_message("ls", "files"), clock.now()),
            RecordUsage("s1", "r", "m", "p", Usage(10, 2, 3, 4, 1), 0.25, clock.now()),
            RecordUsage("s1", "r", "m2", "p", Usage(1, 1), 0.5, clock.now()),
        )
        (summary,) = await store.archive_for(OWNER).list(EVERYTHING)
        assert summary.session == opened
        assert (summary.messages, summary.tool_calls, summary.model_calls) == (3, 2, 2)
        assert summary.usage == Usage(11, 3, 3, 4, 1)
        assert summary.cost == 0.75
        assert summary.last_at == clock.now()
        assert summary.preview == "please look at this"

    async def test_one_unknown_price_makes_the_total_unknown(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        (summary,) = await store.archive_for(OWNER).list(EVERYTHING)
        assert summary.cost == 0.0
        for price in (0.5, None, 0.25):
            await store.commit(RecordUsage("s1", "r", "m", "p", Usage(1), price, clock.now()))
        await store.commit(RecordUsage("s1", "r", "known", "p", Usage(1), 0.5, clock.now()))
        (summary,) = await store.archive_for(OWNER).list(EVERYTHING)
        assert summary.cost is None
        assert list(await store.archive_for(OWNER).usage("s1")) == [
            ModelUsage(model="known", provider="p", calls=1, usage=Usage(1), cost=0.5),
            ModelUsage(model="m", provider="p", calls=3, usage=Usage(3), cost=None),
        ]

    async def test_usage_of_many_calls_is_recorded_in_one_write(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(
            OpenSession(session(clock, "s1")),
            RecordUsage("s1", "r", "m", "p", Usage(50, 5), 2.0, clock.now(), calls=100_000),
            RecordUsage("s1", "r", "m", "p", Usage(1, 1), 0.5, clock.now()),
        )
        (summary,) = await store.archive_for(OWNER).list(EVERYTHING)
        assert (summary.model_calls, summary.usage, summary.cost) == (100_001, Usage(51, 6), 2.5)
        assert list(await store.archive_for(OWNER).usage("s1")) == [
            ModelUsage(model="m", provider="p", calls=100_001, usage=Usage(51, 6), cost=2.5)
        ]

    async def test_usage_counts_on_the_day_of_the_call(
        self, store: Store, clock: FakeClock
    ) -> None:
        first = clock.now()
        await store.commit(OpenSession(session(clock, "s1", principal="telegram:7")))
        for day in (0, 1, 1):
            at = first + timedelta(days=day)
            await store.commit(RecordUsage("s1", "r", "m", "p", Usage(10), 0.5, at))
        expected = DailyUsage(
            model="m", provider="p", calls=2, usage=Usage(20), cost=1.0, session="s1",
            day=(first + timedelta(days=1)).date(), principal="telegram:7", source="cli",
        )  # fmt: skip
        owner = store.archive_for(OWNER)
        newest, oldest = await owner.usage_by_day(first.date(), 10)
        assert newest == expected
        assert (oldest.day, oldest.calls) == (first.date(), 1)
        assert list(await owner.usage_by_day(expected.day, 10)) == [expected]
        assert list(await store.archive_for("telegram:8").usage_by_day(first.date(), 10)) == []
        assert [usage.calls for usage in await owner.usage("s1")] == [3]

    async def test_usage_is_summed_over_sessions(self, store: Store, clock: FakeClock) -> None:
        for name in ("s1", "s2"):
            await store.commit(
                OpenSession(session(clock, name)),
                RecordUsage(name, "r", "m", "p", Usage(2, 1), 0.5, clock.now()),
            )
        archive = store.archive_for(OWNER)
        both = ModelUsage(model="m", provider="p", calls=2, usage=Usage(4, 2), cost=1.0)
        assert list(await archive.usage()) == [both]
        await clock.advance(60)
        await store.commit(AppendMessage("s2", "r", user_message("more"), clock.now()))
        usage = ModelUsage(model="m", provider="p", calls=1, usage=Usage(2, 1), cost=0.5)
        assert list(await archive.usage(since=clock.now())) == [usage]
        assert list(await archive.usage("s1", since=clock.now())) == []
        assert list(await archive.usage("unknown")) == []

    async def test_usage_of_an_unknown_session_is_an_error(
        self, store: Store, clock: FakeClock
    ) -> None:
        with pytest.raises(NotFound):
            await store.commit(RecordUsage("unknown", "r", "m", "p", Usage(), 0.0, clock.now()))

    async def test_list_is_filtered_ordered_and_paged(self, store: Store, clock: FakeClock) -> None:
        start = clock.now()
        for number in range(5):
            await store.commit(
                OpenSession(
                    session(
                        clock,
                        f"s{number}",
                        source="cron" if number % 2 else "cli",
                        model=f"m{number}",
                        title=f"Trip {number}",
                        cwd=f"/w/{number}",
                    )
                ),
                *(
                    AppendMessage(f"s{number}", "r", user_message("x"), clock.now())
                    for _ in range(number)
                ),
            )
            await clock.advance(60)
        ids = partial(listed_ids, store)
        assert await ids(EVERYTHING) == ["s4", "s3", "s2", "s1", "s0"]
        assert await ids(EVERYTHING, 2, 1) == ["s3", "s2"]
        assert await ids(SessionFilter(source="cron")) == ["s3", "s1"]
        assert await ids(SessionFilter(model="m2")) == ["s2"]
        assert await ids(SessionFilter(title="trip 3")) == ["s3"]
        assert await ids(SessionFilter(title="%")) == []
        assert await ids(SessionFilter(cwd="/w/1")) == ["s1"]
        minute = timedelta(minutes=1)
        assert await ids(SessionFilter(started_before=start + minute)) == ["s0"]
        assert await ids(SessionFilter(started_after=start + 3 * minute)) == ["s4"]
        assert await ids(SessionFilter(min_messages=3)) == ["s4", "s3"]
        assert await ids(SessionFilter(max_messages=1, source="cli")) == ["s0"]

    async def test_reviews_and_subagents_are_listed_on_request(
        self, store: Store, clock: FakeClock
    ) -> None:
        for source in ("cli", "review", "subagent"):
            await store.commit(OpenSession(session(clock, source, source=source)))
            await clock.advance(60)
        ids = partial(listed_ids, store)
        assert await ids(EVERYTHING) == ["cli"]
        assert await ids(SessionFilter(source="subagent")) == ["subagent"]
        assert await ids(SessionFilter(reviews=True)) == ["subagent", "review", "cli"]
        latest = await store.archive_for(OWNER).latest()
        assert latest is not None
        assert latest.id == "cli"

    async def test_branches_are_listed_by_their_parent(
        self, store: Store, clock: FakeClock
    ) -> None:
        for name, parent in (("a", None), ("b", None), ("branch", "a")):
            await store.commit(OpenSession(session(clock, name, parent=parent)))
        assert await listed_ids(store, SessionFilter(parent="a")) == ["branch"]
        assert await listed_ids(store, SessionFilter(parent="b")) == []


class StoreContract(
    SessionsContract,
    SummariesContract,
    TranscriptContract,
    IntentsContract,
    SearchContract,
    PrincipalsContract,
    QueuesContract,
    LeasesContract,
    FencesContract,
    JournalContract,
    ResponsesContract,
    MaintenanceContract,
    JobsContract,
):
    """The complete contract."""
