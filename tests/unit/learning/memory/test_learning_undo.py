"""Any changes of memory and skills can be undone byte for byte."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.learning.ledger import Ledger
from hermes.learning.memory import (
    InvalidOperation,
    MemoryAction,
    MemoryFull,
    MemoryLimits,
    MemoryOperation,
    MemoryRequest,
    MemoryStore,
    MemoryTarget,
)
from hermes.learning.skills.catalog import SkillCatalog
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.editor import (
    Authorship,
    SkillAction,
    SkillEditor,
    SkillRequest,
    perform_request,
)
from hermes.learning.skills.usage import SkillUsageLog
from hermes.ports.ledger import Author, Change, ChangeState
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from support.examples import at_most

WORDS = st.sampled_from(["tea", "likes tea", "runs\nin two lines", "é§ü", "x" * 40, "  spaced  "])
ACTIONS = st.sampled_from(["add", "replace", "remove"])
STARTS = st.sampled_from([None, b"", b"tea", b"tea\n", b"tea\n\xc2\xa7\nlikes tea", b"\n tea \r\n"])
HEAD = "---\nname: {}\ndescription: Of {}.\n---\n\n"


@st.composite
def changes(draw: st.DrawFn) -> MemoryRequest:
    def operation() -> MemoryOperation:
        action: MemoryAction = draw(ACTIONS)
        return MemoryOperation(action=action, content=draw(WORDS), old_text=draw(WORDS))

    steps = tuple(operation() for _ in range(draw(st.integers(1, 3))))
    return MemoryRequest(
        target=draw(st.sampled_from(MemoryTarget)),
        operations=steps,
        by=draw(st.sampled_from(Author)),
    )


@st.composite
def requests(draw: st.DrawFn) -> SkillRequest:
    name = draw(st.sampled_from(["tea", "coffee"]))
    action: SkillAction = draw(
        st.sampled_from(["create", "patch", "edit", "delete", "write_file", "remove_file"])
    )
    return SkillRequest(
        action=action,
        name=name,
        content=HEAD.format(name, name) + draw(WORDS),
        category=draw(st.sampled_from(["", "kitchen"])),
        old_string=draw(st.sampled_from(["Of", "tea", "likes"])),
        new_string=draw(WORDS),
        replace_all=draw(st.booleans()),
        file_path=draw(st.sampled_from(["", "references/a.md", "scripts/b/c.sh"])),
        file_content=draw(WORDS),
    )


def files(home: Path) -> dict[str, bytes]:
    found = [path for name in ("memories", "skills") for path in (home / name).rglob("*")]
    return {
        path.relative_to(home).as_posix(): path.read_bytes()
        for path in found
        if path.is_file() and not path.name.startswith(".")
    }


async def undo_all(
    ledger: Ledger,
    home: Path,
    seen: list[dict[str, bytes]],
    undo: Callable[[str], Awaitable[Change]],
) -> None:
    """Undo every change, last first, and compare the files after each."""
    entries = [one for one in await ledger.log(limit=1000) if one.state is ChangeState.APPLIED]
    assert len(entries) == len(seen)
    for entry, before in zip(reversed(entries), reversed(seen), strict=True):
        await undo(entry.change.id)
        assert files(home) == before


@pytest.mark.slow
@at_most(40)
@given(start=STARTS, wanted=st.lists(changes(), max_size=8))
def test_memory_changes_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, start: bytes | None, wanted: list[MemoryRequest]
) -> None:
    folder = tmp_path_factory.mktemp("memory")

    async def run() -> None:
        clock, home = FakeClock(), folder / "home"
        if start is not None:
            (home / "memories").mkdir(parents=True)
            (home / MemoryTarget.MEMORY.file).write_bytes(start)
        async with open_store(folder / "hermes.db", clock) as store:
            ledger = Ledger(store, home, clock)
            memory = MemoryStore(home, ledger, MemoryLimits(120, 80), clock)
            seen: list[dict[str, bytes]] = []
            for request in wanted:
                before = files(home)
                try:
                    await memory.change(request)
                except (InvalidOperation, MemoryFull):
                    assert files(home) == before
                if files(home) != before:
                    seen.append(before)
            await undo_all(ledger, home, seen, memory.undo)

    anyio.run(run)


@pytest.mark.slow
@at_most(40)
@given(wanted=st.lists(requests(), max_size=10))
def test_skill_changes_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[SkillRequest]
) -> None:
    folder = tmp_path_factory.mktemp("skills")

    async def run() -> None:
        clock, home = FakeClock(), folder / "home"
        async with open_store(folder / "hermes.db", clock) as store:
            ledger = Ledger(store, home, clock)
            catalog, usage = SkillCatalog(home / "skills"), SkillUsageLog(home / "skills", clock)
            editor = SkillEditor(home, catalog, usage, ledger, clock)
            seen: list[dict[str, bytes]] = []
            for request in wanted:
                await clock.advance(1)
                before = files(home)
                try:
                    await perform_request(editor, request, Authorship(author=Author.AGENT))
                except InvalidSkill:
                    assert files(home) == before
                if files(home) != before:
                    seen.append(before)
            await undo_all(ledger, home, seen, ledger.undo)

    anyio.run(run)
