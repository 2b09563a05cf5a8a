"""Changes are recorded before they are written, and can be undone byte for byte."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, structs

from hermes.kit.errors import UsageError
from hermes.kit.failpoints import watch_failpoints
from hermes.kit.ids import new_id
from hermes.learning.diffs import change_text, entry_line, short_id
from hermes.learning.ledger import MAX_WAITING, FileConflict, Ledger, apply_edits, read_if_present
from hermes.ports.ledger import (
    Author,
    Change,
    ChangeOrigin,
    ChangeState,
    FileEdit,
    Proposal,
    PutChange,
)
from hermes.schema.errors import NotFound, StateConflict
from hermes.store.sqlite import SqliteStore
from hermes.testing.clock import FakeClock
from support.examples import at_most


class Crash(BaseException):
    """Simulates the end of the process."""


WHEN = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def change(*edits: FileEdit, summary: str = "add a note") -> Change:
    return Change(
        id=new_id("chg"),
        kind="memory",
        name="memory",
        summary=summary,
        by=Author.AGENT,
        at=WHEN,
        edits=edits,
        origin=ChangeOrigin(session="s1", sources=("page example.org",)),
    )


async def test_change_is_applied_undone_and_redone(ledger: Ledger, home: Path) -> None:
    file = home / "memories" / "MEMORY.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"old\r\n\xff")
    done = await ledger.apply(change(FileEdit("memories/MEMORY.md", b"old\r\n\xff", b"new")))
    assert file.read_bytes() == b"new"
    undone = await ledger.undo(done.id[-6:])
    assert file.read_bytes() == b"old\r\n\xff"
    await ledger.undo(undone.id)
    assert file.read_bytes() == b"new"
    states = [entry.state for entry in await ledger.log()]
    assert states == [ChangeState.UNDONE, ChangeState.UNDONE, ChangeState.APPLIED]


@pytest.mark.parametrize("step", ["ledger.recorded", "ledger.one_file_written", "ledger.applied"])
async def test_cancellation_leaves_nothing_half_done(ledger: Ledger, home: Path, step: str) -> None:
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as waiting:

        def gives_up(name: str) -> None:
            if name == step:
                # It may be called from any thread.
                loop.call_soon_threadsafe(waiting.cancel)

        with watch_failpoints(gives_up):
            done = await ledger.apply(change(FileEdit("a", None, b"1"), FileEdit("b", None, b"2")))
            await ledger.undo(done.id)
        await anyio.sleep_forever()
    assert waiting.cancelled_caught
    entries = await ledger.log()
    assert [one.state for one in entries] in (
        [ChangeState.APPLIED],
        [ChangeState.UNDONE, ChangeState.APPLIED],
    )
    assert (home / "a").exists() == (home / "b").exists() == (len(entries) == 1)


async def test_undo_removes_new_files_and_their_folders(ledger: Ledger, home: Path) -> None:
    done = await ledger.apply(
        change(
            FileEdit("skills/a/b/SKILL.md", None, b"x"),
            FileEdit("skills/a/b/scripts/run", None, b"y"),
        )
    )
    assert (home / "skills/a/b/scripts/run").read_bytes() == b"y"
    await ledger.undo(done.id)
    assert not (home / "skills").exists()


async def test_file_edited_since_is_not_overwritten(ledger: Ledger, home: Path) -> None:
    done = await ledger.apply(change(FileEdit("a", None, b"1"), FileEdit("b", None, b"1")))
    (home / "b").write_bytes(b"mine")
    with pytest.raises(FileConflict, match="b changed"):
        await ledger.undo(done.id)
    assert ((home / "a").read_bytes(), (home / "b").read_bytes()) == (b"1", b"mine")
    assert [entry.state for entry in await ledger.log()] == [
        ChangeState.APPLIED,
        ChangeState.FAILED,
    ]


async def test_conflicting_undo_lists_later_changes(ledger: Ledger, store: SqliteStore) -> None:
    done = await ledger.apply(change(FileEdit("a", None, b"1")))
    others = [change() for _ in range(998)]
    await store.commit(*(PutChange(one, ChangeState.APPLIED) for one in others))
    later = await ledger.apply(change(FileEdit("a", b"1", b"2")))
    with pytest.raises(FileConflict) as caught:
        await ledger.undo(done.id)
    assert (
        caught.value.hint == f"Undo these later changes first, in this order: {short_id(later.id)}."
    )


async def test_undone_change_cannot_be_undone_again(ledger: Ledger) -> None:
    done = await ledger.apply(change(FileEdit("a", None, b"1")))
    await ledger.undo(done.id)
    with pytest.raises(UsageError, match="nothing to undo"):
        await ledger.undo(done.id)


@pytest.mark.parametrize("step", ["ledger.recorded", "ledger.one_file_written", "ledger.applied"])
async def test_interrupted_change_is_completed(
    store: SqliteStore, home: Path, clock: FakeClock, step: str
) -> None:
    def crash(passed: str) -> None:
        if passed == step:
            raise Crash

    two = change(FileEdit("a", None, b"1"), FileEdit("b", None, b"2"))
    with pytest.raises(Crash), watch_failpoints(crash):
        await Ledger(store, home, clock).apply(two)
    # This process is alive, so the record gets the id of a dead one.
    await store._engine.execute("UPDATE ledger_changes SET holder = ''", {})
    await Ledger(store, home, clock).complete_interrupted()
    assert ((home / "a").read_bytes(), (home / "b").read_bytes()) == (b"1", b"2")
    assert [entry.state for entry in await Ledger(store, home, clock).log()] == [
        ChangeState.APPLIED
    ]


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_edits_outside_the_home_are_rejected(home: Path, path: str) -> None:
    with pytest.raises(UsageError):
        apply_edits(home, [FileEdit(path, None, b"x")])


@at_most(60)
@given(
    before=st.dictionaries(st.sampled_from("abc"), st.binary(max_size=20)),
    after=st.dictionaries(st.sampled_from("abc"), st.binary(max_size=20)),
)
def test_any_edits_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("home")
    for name, data in before.items():
        (root / name).write_bytes(data)
    edits = [FileEdit(name, before.get(name), after.get(name)) for name in "abc"]
    apply_edits(root, edits)
    assert {n: d for n in "abc" if (d := read_if_present(root / n)) is not None} == after
    apply_edits(root, [FileEdit(e.path, e.after, e.before) for e in edits])
    assert {n: d for n in "abc" if (d := read_if_present(root / n)) is not None} == before


async def test_proposal_waits_for_a_decision(ledger: Ledger) -> None:
    proposal = Proposal(
        id=new_id("pro"), kind="memory", name="user", summary="add", by=Author.REVIEW, at=WHEN,
        request=Raw(b"{}"),
    )  # fmt: skip
    await ledger.propose(proposal)
    assert [one.id for one in await ledger.waiting("memory")] == [proposal.id]
    assert await ledger.waiting("skill") == []
    await ledger.decide(await ledger.proposal(proposal.id[-5:]), accepted=False)
    assert await ledger.waiting() == []
    with pytest.raises(StateConflict):
        await ledger.decide(proposal, accepted=True)
    with pytest.raises(NotFound) as caught:
        await ledger.proposal(proposal.id)
    assert caught.value.hint == "List the ids: hermes memory pending, or hermes skills pending"
    with pytest.raises(NotFound) as caught:
        await ledger.get("x")
    assert caught.value.hint == "List the ids: hermes memory log, or hermes skills log"


async def test_undone_undo_is_not_a_refusal(ledger: Ledger) -> None:
    done = await ledger.apply(change(FileEdit("a", None, b"1")))
    other = await ledger.apply(change(FileEdit("b", None, b"1")))
    await ledger.undo(other.id)
    last, refused = done, list[bool]()
    for _ in range(4):
        last = await ledger.undo(last.id)
        changes, _ = await ledger.rejected("memory")
        assert other.id in {one.id for one in changes}
        refused.append(done.id in {one.id for one in changes})
    assert refused == [True, False, True, False]


async def test_unreadable_rows_do_not_hide_others(ledger: Ledger, store: SqliteStore) -> None:
    ours = Proposal(
        id=new_id("pro"), kind="memory", name="user", summary="add", by=Author.REVIEW, at=WHEN,
        request=Raw(b"{}"),
    )  # fmt: skip
    waits = structs.replace(ours, id=new_id("pro"))
    for proposal in (ours, structs.replace(ours, id="odd"), waits):
        await ledger.propose(proposal)
    await ledger.apply(structs.replace(change(), id="odd"))
    await ledger.decide(ours, accepted=False)
    await store._engine.execute("UPDATE ledger_changes SET origin = x'7b' WHERE id = 'odd'", {})
    await store._engine.execute("UPDATE ledger_proposals SET origin = x'7b' WHERE id = 'odd'", {})
    changes, proposals = await ledger.rejected("memory")
    assert changes == []
    assert [one.id for one in proposals] == [ours.id]
    before = await ledger.proposed_before("memory", Author.REVIEW)
    assert [one.id for one in before] == [ours.id, waits.id]
    assert await ledger.proposed_before("memory", Author.CURATOR) == []
    assert await ledger.log("memory") == []


async def test_change_text_shows_diff_and_origin(ledger: Ledger) -> None:
    await ledger.apply(change(FileEdit("memories/MEMORY.md", None, b"a\nb")))
    (entry,) = await ledger.log()
    assert "memory: add a note" in entry_line(entry)
    text = change_text(entry.change)
    assert all(
        part in text for part in ("+a", "content from others: page example.org", "session s1")
    )


async def test_too_many_proposals_are_rejected(ledger: Ledger) -> None:
    def proposal() -> Proposal:
        return Proposal(
            id=new_id("pro"), kind="memory", name="user", summary="add", by=Author.AGENT, at=WHEN,
            request=Raw(b"{}"),
        )  # fmt: skip

    for _ in range(MAX_WAITING):
        await ledger.propose(proposal())
    with pytest.raises(UsageError, match="already waiting for a decision"):
        await ledger.propose(proposal())
    await ledger.decide((await ledger.waiting())[0], accepted=False)
    await ledger.propose(proposal())


async def test_old_changes_are_forgotten_but_waiting_proposals_are_not(
    ledger: Ledger, clock: FakeClock
) -> None:
    await ledger.apply(change(FileEdit("a", None, b"1")))
    waits = Proposal(
        id=new_id("pro"), kind="memory", name="user", summary="add", by=Author.AGENT, at=WHEN,
        request=Raw(b"{}"),
    )  # fmt: skip
    await ledger.propose(waits)
    assert await ledger.forget(WHEN) == 0
    assert await ledger.forget(datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert await ledger.log() == []
    assert len(await ledger.waiting()) == 1
