"""Copies of files before a turn changes them: restored, pruned, and private ones left out."""

import os
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.config.schema import Config
from hermes.schema.errors import UsageError
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.checkpoints.file_checkpoints import FileCheckpoints
from hermes.tools.checkpoints.repository import CheckpointLimits, RetentionPolicy
from hermes.tools.checkpoints.touched_files import MAX_FILES, touched_files
from hermes.tools.paths import SessionPaths
from support.app_profile import call_tool, make_scope, open_profile


def arguments(**options: object) -> Raw:
    return Raw(msgspec.json.encode(options))


class CheckpointHarness:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.clock = FakeClock()
        self.checkpoints = self.open()

    def open(self, **keeping: int | CheckpointLimits) -> FileCheckpoints:
        return FileCheckpoints(
            folder=self.root / "checkpoints",
            paths=SessionPaths(self.root, [self.work / "closed.key"]),
            clock=self.clock,
            home=self.root,
            retention=RetentionPolicy(**keeping),  # pyright: ignore[reportArgumentType]
        )

    async def before(self, run: str, **options: object) -> None:
        await self.clock.advance(1)
        scope = Scope("p", "s1", run, str(self.work))
        assert await self.checkpoints.checkpoint_before(scope, arguments(**options)) == ""

    async def restore(self, number: int) -> tuple[int, int]:
        """Restore the checkpoint with this number in the list."""
        await self.clock.advance(1)
        saved = await self.checkpoints.list(str(self.work))
        done = await self.checkpoints.restore(saved[number - 1], "s1")
        assert done.failed == ()
        return done.written, done.removed

    def files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for path in sorted(self.work.rglob("*")):
            if path.is_symlink():
                found[path.name] = b"-> " + os.fsencode(path.readlink())
            elif path.is_file():
                found[path.name] = path.read_bytes()
        return found


@pytest.fixture
def harness(tmp_path: Path) -> CheckpointHarness:
    return CheckpointHarness(tmp_path)


async def test_checkpoints_are_on_by_default(tmp_path: Path) -> None:
    assert Config().checkpoints.enabled == "auto"
    async with open_profile(tmp_path, "terminal: {backend: local}\n") as app:
        (tmp_path / "work" / "test_calc.py").write_text("assert 1 == 2\n")
        await call_tool(app, make_scope(tmp_path), "terminal", command="rm test_calc.py")
        assert not (tmp_path / "work" / "test_calc.py").exists()
        assert app.checkpoints is not None
        (saved,) = await app.checkpoints.list(str(tmp_path / "work"))
        await app.checkpoints.restore(saved, "s")
    assert (tmp_path / "work" / "test_calc.py").read_text() == "assert 1 == 2\n"


async def test_turn_is_undone_and_the_undo_too(harness: CheckpointHarness) -> None:
    work = harness.work
    (work / "a.txt").write_bytes(b"one\r\n")
    (work / "program").write_text("#!/bin/sh\n")
    (work / "program").chmod(0o755)
    (work / "link").symlink_to("a.txt")
    (work / os.fsdecode(b"od\xffd")).write_bytes(b"\0\xff")
    before = harness.files()
    await harness.before("r1", path="a.txt", content="two")
    (work / "a.txt").write_text("two")
    await harness.before("r1", path="new/b.txt", content="b")
    (work / "new").mkdir()
    (work / "new" / "b.txt").write_text("b")
    await harness.before("r1", command="rm program link od*")
    for name in ("program", "link", os.fsdecode(b"od\xffd")):
        (work / name).unlink()
    after = harness.files()
    assert await harness.restore(1) == (4, 1)
    assert harness.files() == before
    assert not (work / "new").exists()
    assert (work / "program").stat().st_mode & 0o111
    await harness.restore(1)
    assert harness.files() == after


async def test_older_checkpoint_undoes_later_turns(harness: CheckpointHarness) -> None:
    for number, name in enumerate(("a", "b"), start=1):
        (harness.work / name).write_text("old")
        await harness.before(f"r{number}", path=name)
        (harness.work / name).write_text("new")
    assert await harness.restore(2) == (2, 0)
    assert harness.files() == {"a": b"old", "b": b"old"}


async def test_command_in_a_small_workspace_saves_files_it_does_not_name(
    harness: CheckpointHarness,
) -> None:
    (harness.work / "data").write_text("kept")
    await harness.before("r1", command="make clean")
    (harness.work / "data").unlink()
    (harness.work / "made").write_text("by make")
    assert await harness.restore(1) == (1, 1)
    assert harness.files() == {"data": b"kept"}


async def test_command_in_a_large_workspace_saves_the_files_it_names(
    harness: CheckpointHarness,
) -> None:
    for number in range(MAX_FILES + 2):
        (harness.work / f"f{number}").touch()
    (harness.work / "f1").write_text("named")
    await harness.before("r1", command="rm -f 'f1'; ls")
    (harness.work / "f1").unlink()
    (harness.work / "f2").unlink()
    assert await harness.restore(1) == (1, 0)
    assert (harness.work / "f1").read_text() == "named"
    assert not (harness.work / "f2").exists()
    with pytest.raises(UsageError, match="more than"):
        await harness.checkpoints.take(str(harness.work), "s1")


async def test_change_of_a_turn_is_known(harness: CheckpointHarness) -> None:
    changed = harness.checkpoints.changed
    (harness.work / "a").write_text("a")
    assert await changed("r1") is False
    await harness.before("r1", command="python -m pytest")
    assert await changed("r1") is False
    (harness.work / "new").touch()
    assert await changed("r1") is True
    await harness.before("r2", path="a")
    assert await changed("r2") is False
    (harness.work / "a").write_text("b")
    assert await changed("r2") is True
    await harness.before("r3", command="touch /tmp/elsewhere")
    assert await changed("r3") is None


async def test_private_and_large_files_are_not_copied(harness: CheckpointHarness) -> None:
    harness.checkpoints = harness.open(limits=CheckpointLimits(file=10))
    (harness.work / "closed.key").write_text("secret")
    (harness.work / "big").write_text("x" * 11)
    (harness.work / "small").write_text("y")
    await harness.before("r1", command="true")
    copies = [path.read_bytes() for path in (harness.root / "checkpoints").rglob("content/*/*")]
    assert copies == [b"y"]
    await harness.restore(1)
    assert set(harness.files()) == {"closed.key", "big", "small"}


async def test_old_checkpoints_and_their_contents_are_deleted(harness: CheckpointHarness) -> None:
    harness.checkpoints = harness.open(snapshots=2)
    for number in range(4):
        (harness.work / "a").write_text(f"text {number}")
        await harness.before(f"r{number}", path="a")
    assert len(await harness.checkpoints.list(str(harness.work))) == 2
    copies = [path.read_text() for path in (harness.root / "checkpoints").rglob("content/*/*")]
    assert sorted(copies) == ["text 2", "text 3"]
    await harness.clock.advance(8 * 24 * 3600)
    await harness.before("late", path="a")
    assert len(await harness.checkpoints.list(str(harness.work))) == 1


def test_files_named_by_calls(tmp_path: Path) -> None:
    def named(**options: object) -> set[str]:
        found = touched_files(tmp_path, arguments(**options), Path("/home/ann"))
        return {str(path.relative_to(tmp_path)) for path in found.paths if path != tmp_path}

    (tmp_path / "sub").mkdir()
    for name in ("a.py", "b.py", "sub/c"):
        (tmp_path / name).touch()
    assert named(path="new.txt", content="a.py") == {"new.txt"}
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: z.py\n*** Delete File: sub/c\n"
    assert named(mode="patch", patch=patch) == {"a.py", "z.py", "sub/c"}
    assert named(command="rm *.py && echo hello > sub/c") == {"a.py", "b.py", "sub/c"}
    assert named(command="rm c", workdir="sub") == {"sub/c"}
    assert named(code="import os; os.remove('a.py')") == {"a.py"}
    assert touched_files(tmp_path, Raw(b"[1]"), tmp_path).paths == ()
