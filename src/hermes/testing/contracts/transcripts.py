"""Contract of transcripts and tool-call intents in a store."""

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.store import (
    AppendMessage,
    HideMessages,
    Intent,
    OpenSession,
    RecordIntent,
    SettleIntent,
    Store,
)
from hermes.schema.errors import NotFound, StoreError
from hermes.schema.messages import Assistant, Stop, Text, ToolCall, Usage, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.schema.tools import Effect
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.samples import (
    append,
    assistant_message,
    calling_message,
    result_message,
    session,
    user_message,
)

EVERYTHING = SessionFilter()


class TranscriptContract:
    async def test_messages_are_read_back_byte_for_byte(
        self, store: Store, clock: FakeClock
    ) -> None:
        args = Raw(b'{ "b" : 1,\t"a":[1.0, 1e5, "\\u00e9\xc3\xa9"] }')
        answer = Assistant(
            id="a1",
            parts=(Text("hm\x00 🎉"), ToolCall("c1", "run", args)),
            stop=Stop.TOOLS,
            usage=Usage(1, 2),
            model="m",
        )
        written = [user_message("hello", "u1"), answer, result_message("c1", "done", "r1")]
        await store.commit(OpenSession(session(clock, "s1")))
        await store.commit(*(AppendMessage("s1", "run1", item, clock.now()) for item in written))
        stored = await store.archive_for(OWNER).messages("s1")
        assert [row.seq for row in stored] == [1, 2, 3]
        assert {row.run for row in stored} == {"run1"}
        assert {row.at for row in stored} == {clock.now()}
        encoded = [msgspec.json.encode(row.message) for row in stored]
        assert encoded == [msgspec.json.encode(item) for item in written]
        read = stored[1].message
        assert isinstance(read, Assistant)
        assert bytes(read.calls[0].args) == bytes(args)

    async def test_messages_after_a_seq_are_read(self, store: Store, clock: FakeClock) -> None:
        await store.commit(OpenSession(session(clock, "s1")), OpenSession(session(clock, "s2")))
        for number in range(4):
            await store.commit(
                append(clock, f"one {number}"),
                AppendMessage("s2", "r", user_message(f"two {number}"), clock.now()),
            )
        archive = store.archive_for(OWNER)
        assert [row.seq for row in await archive.messages("s2", after=2)] == [3, 4]
        assert list(await archive.messages("s2", after=4)) == []
        assert list(await archive.messages("unknown")) == []

    async def test_tail_reads_only_the_last_messages(self, store: Store, clock: FakeClock) -> None:
        messages = [user_message("x" * size, f"u{n}") for n, size in enumerate((9, 9, 9, 5000, 9))]
        await store.commit(OpenSession(session(clock, "s1", principal="ann")))
        await store.commit(
            *(AppendMessage("s1", "r", message, clock.now()) for message in messages)
        )
        archive = store.archive_for("ann")

        async def tail(limit: int, size: int = 10**6) -> tuple[list[int], int]:
            found = await archive.tail("s1", limit, size)
            return [row.seq for row in found.rows], found.more

        assert await tail(9) == ([1, 2, 3, 4, 5], 0)
        assert await tail(2) == ([4, 5], 3)
        assert await tail(9, 5000) == ([5], 4)
        assert await tail(9, 1) == ([5], 4)
        await store.commit(HideMessages("s1", 5))
        assert await tail(9, 1) == ([4], 3)
        assert await tail(2) == ([3, 4], 2)
        before = await archive.tail("s1", 2, 10**6, before=3)
        assert ([row.seq for row in before.rows], before.more) == ([1, 2], 0)
        before = await archive.tail("s1", 1, 10**6, before=3)
        assert ([row.seq for row in before.rows], before.more) == ([2], 1)
        assert (await archive.tail("s1", 9, 10**6, before=1)).rows == ()
        assert (await archive.tail("unknown", 9, 9)).rows == ()
        assert (await store.archive_for("eve").tail("s1", 9, 10**6)).rows == ()
        assert len((await store.archive_for(OWNER).tail("s1", 9, 10**6)).rows) == 4

    async def test_hiding_removes_the_last_messages_for_good(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        for message in (user_message("alpha"), calling_message("ls"), user_message("beta")):
            await store.commit(AppendMessage("s1", "r", message, clock.now()))
        archive = store.archive_for(OWNER)
        assert len((await archive.search("beta")).hits) == 1
        await store.commit(HideMessages("s1", 2))
        assert [row.seq for row in await archive.messages("s1")] == [1]
        (summary,) = await archive.list(EVERYTHING)
        assert (summary.messages, summary.tool_calls) == (1, 0)
        assert list((await archive.search("beta")).hits) == []
        await store.commit(append(clock, "gamma"))
        assert [row.seq for row in await archive.messages("s1")] == [1, 4]
        await store.commit(HideMessages("s1", 1))
        (summary,) = await archive.list(EVERYTHING)
        assert (summary.messages, summary.preview) == (0, "")
        await store.commit(append(clock, "delta"))
        (summary,) = await archive.list(EVERYTHING)
        assert summary.preview == "delta"
        await store.commit(HideMessages("s1", 99))
        with pytest.raises(NotFound):
            await store.commit(HideMessages("unknown", 1))

    async def test_failed_commit_writes_nothing(self, store: Store, clock: FakeClock) -> None:
        with pytest.raises(NotFound):
            await store.commit(
                OpenSession(session(clock, "s1")),
                append(clock, "hello"),
                AppendMessage("unknown", "r", user_message("hello"), clock.now()),
            )
        archive = store.archive_for(OWNER)
        with pytest.raises(NotFound):
            await archive.get("s1")
        assert list((await archive.search("hello")).hits) == []

    async def test_message_that_cannot_be_decoded_is_rejected(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        broken = Assistant("a", (ToolCall("c", "run", Raw(b"{nope")),), Stop.TOOLS)
        with pytest.raises(StoreError):
            await store.commit(AppendMessage("s1", "r", broken, clock.now()))
        lone = User("u", (Text("half \ud800"),))
        with pytest.raises(StoreError):
            await store.commit(AppendMessage("s1", "r", lone, clock.now()))
        assert list(await store.archive_for(OWNER).messages("s1")) == []

    async def test_writes_of_a_commit_apply_in_order(self, store: Store, clock: FakeClock) -> None:
        await store.commit(
            OpenSession(session(clock, "s1")),
            append(clock, "one"),
            HideMessages("s1", 1),
            append(clock, "two"),
        )
        stored = await store.archive_for(OWNER).messages("s1")
        assert [row.seq for row in stored] == [2]

    async def test_empty_commit_is_accepted(self, store: Store) -> None:
        await store.commit()


class IntentsContract:
    async def test_intent_is_open_until_settled(self, store: Store, clock: FakeClock) -> None:
        await store.commit(OpenSession(session(clock, "s1")), OpenSession(session(clock, "s2")))
        first, second = (
            Intent(call=c, session="s1", run="r", tool="t", effect=Effect.WRITE, at=clock.now())
            for c in ("c1", "c2")
        )
        await store.commit(RecordIntent(first), RecordIntent(second))
        assert list(await store.open_intents("s1")) == [first, second]
        assert list(await store.open_intents("s2")) == []
        await store.commit(
            AppendMessage("s1", "r", result_message("c1", "ok"), clock.now()),
            SettleIntent("s1", "c1"),
        )
        assert list(await store.open_intents("s1")) == [second]
        await store.commit(SettleIntent("s1", "c1"), SettleIntent("s1", "unknown"))
        await store.commit(RecordIntent(first))
        assert len(await store.open_intents("s1")) == 2
        orphan = msgspec.structs.replace(first, session="unknown")
        with pytest.raises(NotFound):
            await store.commit(RecordIntent(orphan))

    async def test_settling_does_not_affect_another_session(
        self, store: Store, clock: FakeClock
    ) -> None:
        await store.commit(OpenSession(session(clock, "s1")), OpenSession(session(clock, "s2")))
        ours, other = (
            Intent(call="c1", session=s, run="r", tool="t", effect=Effect.OUTSIDE, at=clock.now())
            for s in ("s1", "s2")
        )
        await store.commit(RecordIntent(ours), RecordIntent(other), SettleIntent("s1", "c1"))
        assert list(await store.open_intents("s1")) == []
        assert list(await store.open_intents("s2")) == [other]

    async def test_empty_answer_is_kept(self, store: Store, clock: FakeClock) -> None:
        await store.commit(OpenSession(session(clock, "s1")))
        await store.commit(AppendMessage("s1", "r", assistant_message(""), clock.now()))
        assert len(await store.archive_for(OWNER).messages("s1")) == 1
