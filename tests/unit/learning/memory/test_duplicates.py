"""Duplicate entries are found and only removed when the person agrees."""

from pathlib import Path

import pytest

from hermes.learning.duplicates import duplicate_entries, find_duplicates, propose_removal
from hermes.learning.ledger import Ledger
from hermes.learning.memory import (
    MemoryLimits,
    MemoryOperation,
    MemoryRequest,
    MemoryStore,
    MemoryTarget,
)
from hermes.ports.ledger import Author
from hermes.testing.clock import FakeClock
from support.cases import cases

LONG = "The build needs Python 3.11 and runs with make test from the root."
SHORT = "Build runs with make test, needs Python 3.11."


@cases(
    ("entries", "dropped"),
    [
        ([LONG, SHORT], [SHORT]),
        ([SHORT, LONG], [SHORT]),
        (["Prefers short answers.", "Prefers short answers"], ["Prefers short answers"]),
        (["The API listens on port 8080.", "The API listens on port 9090."], []),
        (["Likes tea.", "Likes long walks in the rain."], []),
        (["Uses vim as editor", "Lives in Lyon", "uses Vim as the editor"], ["Uses vim as editor"]),
        (["", "§"], []),
    ],
)
def test_duplicates_are_recognized(entries: list[str], dropped: list[str]) -> None:
    assert [one.drop for one in duplicate_entries(MemoryTarget.MEMORY, entries)] == dropped


async def test_removal_is_proposed_once_and_applied_when_accepted(
    home: Path, ledger: Ledger, clock: FakeClock
) -> None:
    memory = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    adds = tuple(
        MemoryOperation(action="add", content=one) for one in (LONG, "Lives in Lyon.", SHORT)
    )
    await memory.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    before = (home / MemoryTarget.MEMORY.file).read_bytes()
    (duplicate,) = await find_duplicates(memory)
    proposal = await propose_removal(memory, duplicate)
    assert "says nearly the same as “The build needs" in proposal.why
    assert (home / MemoryTarget.MEMORY.file).read_bytes() == before
    assert await find_duplicates(memory) == []
    await memory.accept(proposal)
    assert (await memory.read(MemoryTarget.MEMORY)).entries == (LONG, "Lives in Lyon.")
    last = (await ledger.log())[-1].change
    assert last.by is Author.CURATOR
    await ledger.undo(last.id[-6:].lower())
    assert (home / MemoryTarget.MEMORY.file).read_bytes() == before
    assert await find_duplicates(memory) == []


async def test_rejection_only_covers_that_entry(
    home: Path, ledger: Ledger, clock: FakeClock
) -> None:
    memory = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    begin = "In the old house by the river the machine that builds the program "
    texts = [
        f"{begin}is {how}." for how in ("blue", "blue, always blue", "loud", "loud, very loud")
    ]
    adds = tuple(MemoryOperation(action="add", content=one) for one in texts[:2])
    await memory.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    (duplicate,) = await find_duplicates(memory)
    await ledger.decide(await propose_removal(memory, duplicate), accepted=False)
    assert await find_duplicates(memory) == []
    adds = tuple(MemoryOperation(action="add", content=one) for one in texts[2:])
    await memory.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    assert texts[2] in [one.drop for one in await find_duplicates(memory)]


@pytest.mark.parametrize("form", [str, str.lower, str.upper, lambda name: name[-6:].lower()])
async def test_change_can_be_undone_by_its_short_id(
    home: Path, ledger: Ledger, clock: FakeClock, form: type[str]
) -> None:
    memory = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    add = (MemoryOperation(action="add", content="Likes tea."),)
    await memory.change(MemoryRequest(target=MemoryTarget.USER, operations=add, by=Author.PERSON))
    (entry,) = await ledger.log()
    await ledger.undo(form(entry.change.id))
    assert (await memory.read(MemoryTarget.USER)).entries == ()
