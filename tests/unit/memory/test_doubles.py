"""Entries that say the same twice are found; one of them goes only when the person agrees."""

from pathlib import Path

import pytest

from hermes.learning.ledger.change import Author
from hermes.learning.ledger.ledger import Ledger
from hermes.learning.memory.duplicates import duplicate_entries, find_duplicates, propose_removal
from hermes.learning.memory.entries import MemoryLimits, MemoryOperation, MemoryTarget
from hermes.learning.memory.memory_store import MemoryRequest, MemoryStore
from hermes.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

LONG = "The build needs Python 3.11 and runs with make test from the root."
SHORT = "Build runs with make test, needs Python 3.11."


@pytest.mark.parametrize(
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
def test_what_says_the_same(entries: list[str], dropped: list[str]) -> None:
    assert [one.drop for one in duplicate_entries(MemoryTarget.MEMORY, entries)] == dropped


async def test_proposed_once_and_done_when_the_person_agrees(
    home: Path, ledger: Ledger, clock: FakeClock
) -> None:
    notebook = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    adds = tuple(
        MemoryOperation(action="add", content=one) for one in (LONG, "Lives in Lyon.", SHORT)
    )
    await notebook.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    before = (home / MemoryTarget.MEMORY.file).read_bytes()
    (double,) = await find_duplicates(notebook)
    proposal = await propose_removal(notebook, double)
    assert "says nearly the same as “The build needs" in proposal.why
    assert (home / MemoryTarget.MEMORY.file).read_bytes() == before
    assert await find_duplicates(notebook) == []
    await notebook.accept(proposal)
    assert (await notebook.read(MemoryTarget.MEMORY)).entries == (LONG, "Lives in Lyon.")
    last = (await ledger.log())[-1].change
    assert last.by is Author.CURATOR
    await ledger.undo(last.id[-6:].lower())
    assert (home / MemoryTarget.MEMORY.file).read_bytes() == before
    assert await find_duplicates(notebook) == []


async def test_a_no_counts_for_that_entry_and_no_other(
    home: Path, ledger: Ledger, clock: FakeClock
) -> None:
    notebook = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    begin = "In the old house by the river the machine that builds the program "
    said = [f"{begin}is {how}." for how in ("blue", "blue, always blue", "loud", "loud, very loud")]
    adds = tuple(MemoryOperation(action="add", content=one) for one in said[:2])
    await notebook.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    (double,) = await find_duplicates(notebook)
    await ledger.decide(await propose_removal(notebook, double), accepted=False)
    assert await find_duplicates(notebook) == []
    adds = tuple(MemoryOperation(action="add", content=one) for one in said[2:])
    await notebook.change(
        MemoryRequest(target=MemoryTarget.MEMORY, operations=adds, by=Author.PERSON)
    )
    assert said[2] in [one.drop for one in await find_duplicates(notebook)]


@pytest.mark.parametrize("form", [str, str.lower, str.upper, lambda name: name[-6:].lower()])
async def test_a_change_is_named_as_the_log_names_it(
    home: Path, ledger: Ledger, clock: FakeClock, form: type[str]
) -> None:
    notebook = MemoryStore(home, ledger, MemoryLimits(2_200, 1_375), clock)
    add = (MemoryOperation(action="add", content="Likes tea."),)
    await notebook.change(MemoryRequest(target=MemoryTarget.USER, operations=add, by=Author.PERSON))
    (entry,) = await ledger.log()
    await ledger.undo(form(entry.change.id))
    assert (await notebook.read(MemoryTarget.USER)).entries == ()
