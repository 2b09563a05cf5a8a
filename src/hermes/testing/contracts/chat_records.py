"""Contracts of the repositories of chats, sessions, the ledger and the API."""

from datetime import timedelta

import pytest
from msgspec import Raw, structs

from hermes.kit.clock import Clock
from hermes.kit.ids import process_id
from hermes.ports.api_records import (
    BEGUN,
    DONE,
    FREE,
    Callback,
    KeyedRequest,
    PutKeyedRequest,
    SetCallback,
)
from hermes.ports.chat_records import (
    AddSessionKey,
    AddStartedTurn,
    ForgetUnreachable,
    MarkUnreachable,
    PutQuestionPost,
    PutSessionLocation,
    SessionKeyRecord,
    SessionLocation,
    UnreachableChat,
)
from hermes.ports.compaction_records import (
    AddPin,
    CompactionView,
    Pin,
    PutCompactionView,
    RemovePin,
)
from hermes.ports.ledger import (
    AddProposal,
    Author,
    Change,
    ChangeOrigin,
    ChangeState,
    DecideProposal,
    FileEdit,
    LedgerEntry,
    Proposal,
    ProposalState,
    PutChange,
)
from hermes.ports.run_records import AddSpendBefore, FailedRun, PutFailedRun
from hermes.ports.runtime_sessions import PutRuntimeSession, RuntimeSession
from hermes.ports.store import OpenSession, Store
from hermes.schema.errors import StateConflict
from hermes.schema.scope import OWNER, Address, Requester, Role
from hermes.testing.contracts.samples import session


def holders_of(store: Store) -> dict[str, str]:
    """Sample holders by what is known about them."""
    host, boot, *_ = process_id().split("/")
    return {
        "old, alive": process_id(),
        "old, dead": f"{host}/{boot}/1/0",
        "none": "",
        "elsewhere": "elsewhere/x/1/2",
        "own": store.workers.own,
    }


HOUR = timedelta(hours=1)
HERE = Address("telegram", "1", "2")


class ChatRecordsContract:
    async def test_location_is_replaced_by_the_next_one(self, store: Store) -> None:
        guest = SessionLocation(
            session="s1",
            key="k1",
            address=HERE,
            principal="ann",
            role=Role.GUEST,
            asker=Requester(user="7", name="é"),
        )
        await store.commit(PutSessionLocation(guest))
        assert await store.chats.location("s1") == guest
        moved = SessionLocation(session="s1", key="k2", address=HERE)
        await store.commit(PutSessionLocation(moved))
        assert await store.chats.location("s1") == moved
        assert await store.chats.location("s2") is None

    async def test_session_key_belongs_to_the_first_chat(self, store: Store) -> None:
        first = SessionKeyRecord(key="k1", topic="t1", chat=Raw(b'{"chat":"1"}'))
        await store.commit(AddSessionKey(first))
        with pytest.raises(StateConflict):
            await store.commit(AddSessionKey(structs.replace(first, topic="t2")))
        await store.commit(AddSessionKey(structs.replace(first, key="k2")))
        await store.commit(AddSessionKey(structs.replace(first, key="k3", topic="t2")))
        found = await store.chats.session_key("k1")
        assert found is not None
        assert (found.topic, bytes(found.chat)) == ("t1", b'{"chat":"1"}')
        assert list(await store.chats.keys_at("t1", 10)) == ["k2", "k1"]
        assert list(await store.chats.keys_at("t1", 1)) == ["k2"]

    async def test_post_of_a_question_is_found_in_every_thread(
        self, store: Store, clock: Clock
    ) -> None:
        await store.commit(PutQuestionPost(HERE, "p1", "ask_1", clock.now()))
        elsewhere = Address("telegram", "2", "2")
        assert await store.chats.question_in(Address("telegram", "1"), "p1") == "ask_1"
        assert await store.chats.question_in(elsewhere, "p1") == ""
        assert await store.chats.forget_question_posts(clock.now()) == 0
        assert await store.chats.forget_question_posts(clock.now() + HOUR) == 1
        assert await store.chats.question_in(HERE, "p1") == ""

    async def test_started_turns_are_counted_by_principal(self, store: Store, clock: Clock) -> None:
        times = [clock.now() + number * HOUR for number in range(3)]
        for number, at in enumerate(times):
            await store.commit(AddStartedTurn(f"m{number}", "ann", at))
        await store.commit(AddStartedTurn("m9", "bob", clock.now()))
        assert list(await store.chats.started_turns("ann", 2)) == times[1:]
        assert await store.chats.forget_started_turns(times[1]) == 2
        assert list(await store.chats.started_turns("ann", 9)) == times[1:]
        assert list(await store.chats.started_turns("bob", 9)) == []

    async def test_unreachable_chats_are_listed_by_when_they_were_marked(
        self, store: Store
    ) -> None:
        for topic in ("a", "b", "c", "a"):
            await store.commit(MarkUnreachable(UnreachableChat(topic, f"blocked {topic}")))
        assert [chat.topic for chat in await store.chats.unreachable(9)] == ["b", "c", "a"]
        assert [chat.topic for chat in await store.chats.unreachable(2)] == ["c", "a"]
        await store.commit(ForgetUnreachable("c"), ForgetUnreachable("x"))
        assert list(await store.chats.unreachable(9)) == [
            UnreachableChat("b", "blocked b"),
            UnreachableChat("a", "blocked a"),
        ]


class SessionRecordsContract:
    async def test_view_replaces_the_version_before(self, store: Store) -> None:
        first = CompactionView("s1", 1, Raw(b'{"times":1}'))
        await store.commit(PutCompactionView(first))
        for late in (first, structs.replace(first, version=3)):
            with pytest.raises(StateConflict):
                await store.commit(PutCompactionView(late))
        await store.commit(PutCompactionView(CompactionView("s1", 2, Raw(b"{}"))))
        found = await store.compaction.view("s1")
        assert found is not None
        assert (found.version, bytes(found.state)) == (2, b"{}")
        assert await store.compaction.view("s2") is None

    async def test_pins_are_listed_until_removed(self, store: Store) -> None:
        pins = [Pin(f"pin_{number}", "s1", f"é {number}") for number in range(3)]
        await store.commit(*map(AddPin, pins), AddPin(Pin("other", "s2", "x")))
        await store.commit(RemovePin("pin_1"))
        assert list(await store.compaction.pins("s1")) == [pins[0], pins[2]]

    async def test_failures_are_kept_for_a_while(self, store: Store, clock: Clock) -> None:
        failed = FailedRun(run="r1", session="s1", outcome="failed", reason="x", at=clock.now())
        again = structs.replace(failed, reason="y")
        await store.commit(PutFailedRun(failed), PutFailedRun(again))
        assert list(await store.runs.failures("s1")) == [again]
        assert await store.runs.forget_failures(clock.now()) == 0
        assert await store.runs.forget_failures(clock.now() + HOUR) == 1

    async def test_spend_before_a_day_is_stored_once(self, store: Store) -> None:
        await store.commit(AddSpendBefore("2026-01-31", "everybody", 1.5))
        with pytest.raises(StateConflict):
            await store.commit(AddSpendBefore("2026-01-31", "everybody", 2.0))
        await store.commit(AddSpendBefore("2026-01-31", "ann", 0.0))
        assert await store.runs.spend_before("2026-01-31", "everybody") == 1.5
        assert await store.runs.spend_before("2026-01-31", "ann") == 0.0
        assert await store.runs.spend_before("2026-02-01", "ann") is None
        assert await store.runs.forget_spend("2026-01-31") == 0
        assert await store.runs.forget_spend("2026-02-01") == 2

    async def test_runtime_sessions_are_listed_by_their_last_change(
        self, store: Store, clock: Clock
    ) -> None:
        for number, name in enumerate(("a", "b", "c", "a")):
            record = RuntimeSession(
                runtime="codex",
                id=name,
                session="s1",
                at=clock.now() + number * HOUR,
                state=Raw(b"%d" % number),
            )
            await store.commit(PutRuntimeSession(record))
        assert [
            runtime_session.id
            for runtime_session in await store.runtime_sessions.newest("codex", 2)
        ] == ["c", "a"]
        found = await store.runtime_sessions.get("codex", "a")
        assert found is not None
        assert bytes(found.state) == b"3"
        assert await store.runtime_sessions.get("proxy", "a") is None

    async def test_records_of_a_deleted_session_are_deleted(
        self, store: Store, clock: Clock
    ) -> None:
        now = clock.now()
        await store.commit(
            OpenSession(session(clock, "s1")),
            PutSessionLocation(SessionLocation(session="s1", key="k", address=HERE)),
            PutCompactionView(CompactionView("s1", 1, Raw(b"{}"))),
            AddPin(Pin("pin", "s1", "x")),
            PutFailedRun(FailedRun(run="r", session="s1", outcome="failed", reason="", at=now)),
            PutRuntimeSession(
                RuntimeSession(runtime="codex", id="s1", session="s1", at=now, state=Raw(b"{}"))
            ),
            SetCallback("s1", Callback("https://a.example")),
            PutKeyedRequest(keyed_request(clock), None),
            AddProposal(proposal("pro_1", clock)),
        )
        await store.archive_for(OWNER).delete(["s1"])
        assert await store.chats.location("s1") is None
        assert await store.compaction.view("s1") is None
        assert list(await store.compaction.pins("s1")) == []
        assert list(await store.runs.failures("s1")) == []
        assert await store.runtime_sessions.get("codex", "s1") is None
        assert await store.api.callback("s1") is None
        assert await store.api.keyed_request("key") is None
        assert list(await store.ledger.proposals(limit=9)) == []


def keyed_request(clock: Clock) -> KeyedRequest:
    return KeyedRequest(id="key", session="s1", state=BEGUN, fingerprint="f", at=clock.now())


class ApiRecordsContract:
    async def test_callback_is_replaced_and_removed(self, store: Store) -> None:
        for name in ("s1", "s2", "s1"):
            await store.commit(SetCallback(name, Callback("https://a.example", sealed=name)))
        assert await store.api.callback("s1") == Callback("https://a.example", sealed="s1")
        assert list(await store.api.sessions_with_callback(9)) == ["s1", "s2"]
        assert list(await store.api.sessions_with_callback(1)) == ["s1"]
        await store.commit(SetCallback("s1", None), SetCallback("s3", None))
        assert list(await store.api.sessions_with_callback(9)) == ["s2"]

    async def test_keyed_request_changes_only_in_the_expected_state(
        self, store: Store, clock: Clock
    ) -> None:
        begun = keyed_request(clock)
        await store.commit(PutKeyedRequest(begun, ""))
        done = structs.replace(begun, state=DONE, answer=Raw(b'{"a":1}'))
        for wrong in ("", FREE):
            with pytest.raises(StateConflict):
                await store.commit(PutKeyedRequest(done, wrong))
        await store.commit(PutKeyedRequest(done, BEGUN))
        found = await store.api.keyed_request("key")
        assert found is not None
        assert found.answer is not None
        assert (found.state, bytes(found.answer)) == (DONE, b'{"a":1}')
        await store.commit(PutKeyedRequest(begun, None))
        assert await store.api.keyed_request("key") == begun

    async def test_begun_requests_of_dead_workers_are_abandoned(
        self, store: Store, clock: Clock
    ) -> None:
        for name, holder in holders_of(store).items():
            begun = structs.replace(keyed_request(clock), id=name, holder=holder)
            await store.commit(PutKeyedRequest(begun, ""))
        done = structs.replace(keyed_request(clock), state=DONE)
        await store.commit(PutKeyedRequest(done, ""))
        abandoned = [request.id for request in await store.api.abandoned_requests()]
        assert abandoned == ["old, dead", "none", "elsewhere"]
        assert await store.api.forget_requests(clock.now()) == 0
        assert await store.api.forget_requests(clock.now() + HOUR) == 1


def change(name: str, clock: Clock, kind: str = "memory") -> Change:
    return Change(
        id=name,
        kind=kind,
        name="user",
        summary="é",
        by=Author.REVIEW,
        at=clock.now(),
        edits=(FileEdit("a", None, b"\xff"), FileEdit("b", b"1", None)),
        origin=ChangeOrigin(session="s1", principal="ann", sources=("web",)),
        undoes="chg_0",
    )


def proposal(name: str, clock: Clock, kind: str = "memory") -> Proposal:
    return Proposal(
        id=name,
        kind=kind,
        name="user",
        summary="add",
        by=Author.REVIEW,
        at=clock.now(),
        request=Raw(b'{"a":1}'),
        origin=ChangeOrigin(session="s1"),
    )


class LedgerRecordsContract:
    async def test_change_moves_on_from_the_expected_state(
        self, store: Store, clock: Clock
    ) -> None:
        one = change("chg_1", clock)
        await store.commit(PutChange(one, ChangeState.APPLYING, holder=store.workers.own))
        for expected in (None, ChangeState.APPLIED):
            with pytest.raises(StateConflict):
                await store.commit(PutChange(one, ChangeState.UNDONE, expected))
        await store.commit(PutChange(one, ChangeState.APPLIED, ChangeState.APPLYING))
        assert await store.ledger.changes(limit=9) == [LedgerEntry(one, ChangeState.APPLIED)]

    async def test_changes_are_found_by_kind_and_state(self, store: Store, clock: Clock) -> None:
        for name, kind in (("1", "memory"), ("2", "skill"), ("3", "memory")):
            await store.commit(PutChange(change(name, clock, kind), ChangeState.APPLIED))
        await store.commit(PutChange(change("1", clock), ChangeState.UNDONE, ChangeState.APPLIED))

        async def ids(
            kind: str | None = None, state: ChangeState | None = None, limit: int = 9
        ) -> str:
            found = await store.ledger.changes(kind=kind, state=state, limit=limit)
            return "".join(entry.change.id for entry in found)

        assert await ids() == "123"
        assert await ids("memory") == "13"
        assert await ids("memory", limit=1) == "3"
        assert await ids("memory", ChangeState.UNDONE) == "1"
        assert await store.ledger.forget(clock.now()) == 0
        assert await store.ledger.forget(clock.now() + HOUR) == 3

    async def test_changes_of_dead_workers_are_abandoned(self, store: Store, clock: Clock) -> None:
        for name, holder in holders_of(store).items():
            await store.commit(PutChange(change(name, clock), ChangeState.APPLYING, holder=holder))
        abandoned = [one.id for one in await store.ledger.abandoned_changes()]
        assert abandoned == ["old, dead", "none", "elsewhere"]
        assert await store.ledger.forget(clock.now() + HOUR) == 0

    async def test_proposal_is_decided_once(self, store: Store, clock: Clock) -> None:
        one = proposal("pro_1", clock)
        await store.commit(AddProposal(one), AddProposal(proposal("pro_2", clock, "skill")))
        with pytest.raises(StateConflict):
            await store.commit(AddProposal(one))
        later = clock.now() + HOUR
        await store.commit(DecideProposal("pro_1", ProposalState.REJECTED, later))
        with pytest.raises(StateConflict):
            await store.commit(DecideProposal("pro_1", ProposalState.ACCEPTED, later))
        find = store.ledger.proposals
        (found,) = await find(state=ProposalState.REJECTED, limit=9)
        assert bytes(found.request) == bytes(one.request)
        assert structs.replace(found, request=one.request) == one
        assert [two.id for two in await find(state=ProposalState.WAITING, limit=9)] == ["pro_2"]
        assert [two.id for two in await find(kind="memory", limit=9)] == ["pro_1"]
        assert list(await find(by=Author.CURATOR, limit=9)) == []
        assert await store.ledger.forget(later) == 0
        assert await store.ledger.forget(later + HOUR) == 1
