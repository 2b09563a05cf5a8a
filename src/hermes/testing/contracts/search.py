"""Contract of message search in a store, and of what each principal can see.

A principal sees only its own sessions, the owner all of them.
"""

from datetime import timedelta

import pytest
from msgspec import Raw

from hermes.ports.store import AppendMessage, HideMessages, OpenSession, RecordUsage, Store
from hermes.schema.errors import NotFound
from hermes.schema.messages import Assistant, Message, Reasoning, Stop, Text, ToolCall, Usage
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SearchFilter, SessionFilter
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import (
    append,
    assistant_message,
    result_message,
    session,
    user_message,
)

FRUIT = (
    "The quick brown fox jumps over the lazy dog",
    "A dog and a fox walked into a bar.configuration file",
    "Crème brûlée à la carte",
    "我明天去東京出差",
    "明日は東京タワーに行きます",
    "Tokyo 2026: 100% 🎉 done",
    "안녕하세요 세계",
    "snake_case_name and camelCaseName in foo/bar-baz.py",
)
PRINCIPALS = (OWNER, "telegram:7", "telegram:77")


async def fill_session(store: Store, clock: FakeClock, *messages: Message) -> None:
    await store.commit(
        OpenSession(session(clock, "s1", title="the session")),
        *(AppendMessage("s1", "r", message, clock.now()) for message in messages),
    )


async def found_numbers(store: Store, query: str, role: str | None = None) -> list[int]:
    """Return the sequence numbers of the hits, sorted."""
    return sorted(hit.seq for hit in (await store.archive_for(OWNER).search(query, role=role)).hits)


class SearchContract:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("fox dog", [1, 2]),
            ("dog FOX", [1, 2]),
            ('"brown fox"', [1]),
            ('"fox brown"', []),
            ('"lazy dog" quick', [1]),
            ("config*", [2]),
            ("figura", [2]),
            ("fox zebra", []),
            ("creme brulee", [3]),
            ("CRÈME", [3]),
            ("東", [4, 5]),
            ("東京", [4, 5]),
            ("京東", []),
            ("東京タワー", [5]),
            ("明天去東京", [4]),
            ("🎉", [6]),
            ("세계", [7]),
            ("안녕", [7]),
            ("snake_case", [8]),
            ("melCaseN", [8]),
            ("bar-baz.py", [8]),
            ("r-baz.p", [8]),
            ("100%", [6]),
            ("%", [6]),
            ("", []),
            ("   ", []),
            ('"', []),
            ('""', []),
            ("*", []),
            ("nothing like it", []),
        ],
    )
    async def test_query_finds_matching_messages(
        self, store: Store, clock: FakeClock, query: str, expected: list[int]
    ) -> None:
        await fill_session(store, clock, *(user_message(text) for text in FRUIT))
        assert await found_numbers(store, query) == expected

    @pytest.mark.parametrize(
        "query",
        [
            "fox AND",
            "NOT fox",
            "fox OR",
            "text:fox",
            "fox NEAR(",
            "(fox",
            "fox)",
            'fo"x',
            '"fox',
            "fox^2",
            "-fox",
            "+fox +dog",
            "fox\x00dog",
            "\ud800",
            "'; DROP TABLE messages; --",
            "{fox}",
            "* *",
            "a" * 10_000,
            "x " * 2_000,
        ],
    )
    async def test_query_never_raises_a_syntax_error(
        self, store: Store, clock: FakeClock, query: str
    ) -> None:
        await fill_session(store, clock, *(user_message(text) for text in FRUIT))
        await store.archive_for(OWNER).search(query)
        assert await found_numbers(store, "fox") == [1, 2]

    async def test_hit_has_position_and_marked_snippet(
        self, store: Store, clock: FakeClock
    ) -> None:
        long = "word " * 200 + "the golden needle lies here " + "word " * 200
        await fill_session(store, clock, user_message("hello"), assistant_message(long))
        (hit,) = (await store.archive_for(OWNER).search("NEEDLE golden")).hits
        assert hit.session == await store.archive_for(OWNER).get("s1")
        assert (hit.seq, hit.role, hit.at) == (2, "assistant", clock.now())
        assert ">>>golden<<< >>>needle<<<" in hit.snippet
        assert len(hit.snippet) < 400

    async def test_snippet_marks_the_original_characters(
        self, store: Store, clock: FakeClock
    ) -> None:
        await fill_session(
            store, clock, user_message("Zum Frühstück: Crème brûlée"), user_message("去東京出差")
        )
        (first,) = (await store.archive_for(OWNER).search("creme")).hits
        assert first.snippet == "Zum Frühstück: >>>Crème<<< brûlée"
        (second,) = (await store.archive_for(OWNER).search("東京")).hits
        assert second.snippet == "去>>>東京<<<出差"
        (third,) = (await store.archive_for(OWNER).search("hstuc")).hits
        assert third.snippet == "Zum Frü>>>hstüc<<<k: Crème brûlée"

    async def test_search_respects_role_and_limit(self, store: Store, clock: FakeClock) -> None:
        await fill_session(
            store,
            clock,
            user_message("plum"),
            assistant_message("plum"),
            result_message("c", "plum"),
        )
        assert await found_numbers(store, "plum") == [1, 2, 3]
        assert await found_numbers(store, "plum", "user") == [1]
        assert await found_numbers(store, "plum", "result") == [3]
        assert await found_numbers(store, "plu", "assistant") == [2]
        assert len((await store.archive_for(OWNER).search("plum", limit=2)).hits) == 2
        assert len((await store.archive_for(OWNER).search("lum", limit=1)).hits) == 1

    @pytest.mark.parametrize("query", ['"plum"', "lum", "%"])
    async def test_search_of_some_sessions_is_not_crowded_out_by_others(
        self, store: Store, clock: FakeClock, query: str
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1", source="cli")), append(clock, "plum %"))
        clock.step(60)
        await store.commit(OpenSession(session(clock, "s2", source="web")))
        for _ in range(2):
            messages = (user_message("plum %") for _ in range(1_100))
            await store.commit(*(AppendMessage("s2", "r", one, clock.now()) for one in messages))
        begin = clock.now()
        for where, expected in (
            (SearchFilter(source="cli"), {"s1"}),
            (SearchFilter(started_before=begin), {"s1"}),
            (SearchFilter(source="web"), {"s2"}),
            (SearchFilter(started_after=begin - timedelta(seconds=30)), {"s2"}),
            (SearchFilter(source="cli", started_after=begin), set[str]()),
        ):
            found = await store.archive_for(OWNER).search(query, 3, where=where)
            assert {hit.session.id for hit in found.hits} == expected

    async def test_search_covers_tool_calls_but_not_reasoning(
        self, store: Store, clock: FakeClock
    ) -> None:
        parts = (
            Reasoning("a secret thought"),
            Text("Let me see."),
            ToolCall("c", "terminal", Raw(b'{"command": "pg_dump --all"}')),
        )
        await fill_session(store, clock, Assistant("a", parts, Stop.TOOLS))
        assert await found_numbers(store, "pg_dump") == [1]
        assert await found_numbers(store, "terminal") == [1]
        assert await found_numbers(store, "thought") == []

    async def test_committed_message_is_found_immediately(
        self, store: Store, clock: FakeClock
    ) -> None:
        await fill_session(store, clock)
        for number in range(30):
            await store.commit(append(clock, f"token{number}"))
            assert await found_numbers(store, f"token{number}") == [number + 1]

    async def test_newer_of_equal_hits_comes_first(self, store: Store, clock: FakeClock) -> None:
        await fill_session(store, clock, *(user_message("the same words") for _ in range(3)))
        assert [hit.seq for hit in (await store.archive_for(OWNER).search("same words")).hits] == [
            3,
            2,
            1,
        ]
        assert [hit.seq for hit in (await store.archive_for(OWNER).search("ame")).hits] == [3, 2, 1]

    async def test_hidden_messages_are_not_found(self, store: Store, clock: FakeClock) -> None:
        await fill_session(store, clock, user_message("apple one"), user_message("apple two"))
        await store.commit(HideMessages("s1", 2))
        assert await found_numbers(store, "apple") == [1]
        assert await found_numbers(store, "pple") == [1]
        await store.commit(HideMessages("s1", 1))
        assert await found_numbers(store, "apple") == []
        assert await found_numbers(store, "pple") == []


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
            assert {hit.session.principal for hit in (await archive.search(query)).hits} == {who}
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
        assert len((await archive.search("mango")).hits) == 3
        assert len(await archive.usage()) == 3
        assert await archive.delete([f"session-{number}" for number in range(3)]) == 3

    async def test_unknown_principal_sees_nothing(self, store: Store, clock: FakeClock) -> None:
        await populate(store, clock)
        for principal in ("", "telegram", "telegram:777", "OWNER", "%"):
            archive = store.archive_for(principal)
            assert await archive.latest() is None
            assert list(await archive.list(SessionFilter())) == []
            assert list((await archive.search("mango")).hits) == []
            assert list((await archive.search("ango")).hits) == []
            assert list(await archive.usage()) == []
