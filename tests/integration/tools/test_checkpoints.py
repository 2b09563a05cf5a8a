"""Checkpoints with a real git: files are restored, the user's own repository is not touched."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.ports.checkpoints import Checkpoint
from hermes.ports.sandbox import ProcessSpec
from hermes.ports.tool import ToolContext
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import UsageError
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import build_tools
from hermes.tools.checkpoints.git_checkpoints import CheckpointDeps, GitCheckpoints
from hermes.tools.checkpoints.repository import CheckpointLimits, RetentionPolicy, find_git
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.paths import SessionPaths
from hermes.tools.terminal.shell import find_shell

NO_ARGS = Raw(b"{}")
PATH = "/usr/local/bin:/usr/bin:/bin"


class CheckpointHarness:
    def __init__(self, root: Path, door: Spawner) -> None:
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.clock = FakeClock()
        self.sandbox = LocalSandbox(door)
        self.places = SessionPaths(root / "home", [root / "work" / "closed.key"])
        self.shadow = self.opened()

    def opened(
        self, git: str | None = find_git(PATH), **keeping: int | CheckpointLimits
    ) -> GitCheckpoints:
        return GitCheckpoints(
            CheckpointDeps(
                sandbox=self.sandbox,
                git=git,
                folder=self.root / "home" / "checkpoints",
                paths=self.places,
                clock=self.clock,
                home=self.root / "home",
                retention=RetentionPolicy(**keeping),  # pyright: ignore[reportArgumentType]
            )
        )

    async def git(self, *args: str, where: str = ".") -> bytes:
        argv = (find_git(PATH) or "git", *args)
        env = {"HOME": str(self.root), "PATH": PATH}
        job = ProcessSpec(argv=argv, cwd=str(self.work / where), env=env, timeout=30)
        return (await self.sandbox.run(job)).output

    async def take(self, reason: str = "") -> Checkpoint:
        return await self.shadow.take(str(self.work), "s1", reason)

    def scope(self, run: str) -> Scope:
        return Scope("p", "s1", run, str(self.work))

    def files(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for path in sorted(self.work.rglob("*")):
            name = str(path.relative_to(self.work))
            if path.is_symlink():
                found[name] = b"-> " + os.fsencode(path.readlink())
            elif path.is_file():
                found[name] = path.read_bytes()
        return found


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[CheckpointHarness]:
    with Spawner() as door:
        yield CheckpointHarness(tmp_path, door)


async def test_restore_and_undo(harness: CheckpointHarness):
    work = harness.work
    (work / "sub").mkdir()
    (work / "a.txt").write_bytes(b"one\r\ntwo\n")
    (work / "sub" / "program").write_text("#!/bin/sh\n")
    (work / "sub" / "program").chmod(0o755)
    (work / "link").symlink_to("a.txt")
    (work / os.fsdecode(b"od\xffd")).write_bytes(b"\0\xff")
    (work / "turns").write_text("a file")
    before = harness.files()
    first = await harness.take()
    (work / "a.txt").write_text("changed")
    (work / "sub" / "program").unlink()
    (work / "sub").rmdir()
    (work / "link").unlink()
    (work / "link").write_text("no link")
    (work / os.fsdecode(b"od\xffd")).unlink()
    (work / "turns").unlink()
    (work / "turns").mkdir()
    (work / "turns" / "inside").write_text("a folder now")
    (work / "new" / "deep").mkdir(parents=True)
    (work / "new" / "deep" / "file").write_text("new")
    after = harness.files()
    done = await harness.shadow.restore(first, "s1")
    assert harness.files() == before
    assert (done.written, done.removed, done.failed) == (5, 2, ())
    assert not (work / "new").exists()
    assert (work / "sub" / "program").stat().st_mode & 0o111
    kept = await harness.shadow.list(str(work))
    assert [one.id for one in kept] == [done.before.id, first.id]
    await harness.shadow.restore(done.before, "s1")
    assert harness.files() == after


async def test_users_repository_is_not_touched(harness: CheckpointHarness):
    work = harness.work
    await harness.git("init", "-q")
    (work / ".gitignore").write_text("ignored/\n*.log\n")
    (work / ".gitattributes").write_text("* text eol=crlf\n*.f filter=evil\n")
    await harness.git("config", "filter.evil.clean", f"touch {harness.root}/ran; cat")
    (work / "a.f").write_text("one\n")
    await harness.git("add", "-A")
    await harness.git("-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "c")
    (harness.root / "ran").unlink()
    (work / "ignored").mkdir()
    (work / "ignored" / "x").write_text("1")
    (work / "y.log").write_text("1")
    mine = {
        path: path.read_bytes() for path in sorted((work / ".git").rglob("*")) if path.is_file()
    }
    first = await harness.take()
    (work / "a.f").write_text("two\n")
    (work / "y.log").write_text("2")
    (work / "ignored" / "x").write_text("2")
    await harness.shadow.restore(first, "s1")
    assert (work / "a.f").read_bytes() == b"one\n"
    assert (work / "y.log").read_text() == (work / "ignored" / "x").read_text() == "2"
    assert not (harness.root / "ran").exists()
    assert mine == {
        path: path.read_bytes() for path in sorted((work / ".git").rglob("*")) if path.is_file()
    }


async def test_nested_repositories_are_saved(harness: CheckpointHarness):
    (harness.work / "lib").mkdir()
    await harness.git("init", "-q", where="lib")
    (harness.work / "lib" / "x").write_text("one")
    (harness.work / "y").write_text("one")
    first = await harness.take()
    (harness.work / "lib" / "x").write_text("two")
    (harness.work / "lib" / "z").write_text("new")
    (harness.work / "y").write_text("two")
    done = await harness.shadow.restore(first, "s1")
    assert (done.written, done.removed) == (2, 1)
    assert (harness.work / "lib" / "x").read_text() == (harness.work / "y").read_text() == "one"
    assert (harness.work / "lib" / ".git" / "HEAD").is_file()


async def test_large_and_blocked_files_are_skipped(harness: CheckpointHarness):
    harness.shadow = harness.opened(limits=CheckpointLimits(file=1_000))
    (harness.work / "large").write_bytes(b"x" * 1_001)
    (harness.work / "closed.key").write_text("secret-of-ours")
    (harness.work / ".env").write_text("KEY=value-of-theirs")
    (harness.work / "grows").write_text("small")
    first = await harness.take()
    (harness.work / "large").write_text("small by now")
    (harness.work / "grows").write_bytes(b"y" * 2_000)
    done = await harness.shadow.restore(first, "s1")
    assert (harness.work / "large").read_text() == "small by now"
    assert (harness.work / "closed.key").read_text() == "secret-of-ours"
    assert (harness.work / "grows").read_text() == "small"
    assert done.failed == ()
    store = str(harness.root / "home/checkpoints/store")
    objects = await harness.git("--git-dir", store, "cat-file", "--batch-all-objects", "--batch")
    assert b"secret-of-ours" not in objects
    assert b"value-of-theirs" not in objects


async def test_one_checkpoint_per_run_before_its_first_change(harness: CheckpointHarness):
    (harness.work / "a").write_text("one")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(harness.shadow.checkpoint_before, harness.scope("run-1"), NO_ARGS)
    (harness.work / "a").write_text("two")
    assert await harness.shadow.checkpoint_before(harness.scope("run-1"), NO_ARGS) == ""
    assert await harness.shadow.checkpoint_before(harness.scope("run-2"), NO_ARGS) == ""
    second, first = await harness.shadow.list(str(harness.work))
    assert (first.run, second.run) == ("run-1", "run-2")
    await harness.shadow.restore(first, "s1")
    assert (harness.work / "a").read_text() == "one"


async def test_writing_tools_take_a_checkpoint_first(harness: CheckpointHarness):
    deps = ToolCollaborators(
        sandbox=harness.sandbox,
        blobs=FileBlobs(harness.root / "blobs"),
        clock=harness.clock,
        env=lambda _: {"PATH": PATH},
        redact=str,
        home=harness.root / "home",
        spill_folder=harness.root / "spilled",
        shell=find_shell(PATH),
        rg=None,
        checkpoints=harness.shadow,
    )
    tools = build_tools(deps)
    progress_texts: list[str] = []

    async def progress(text: str) -> None:
        progress_texts.append(text)

    async def call(name: str, run: str, **args: str) -> None:
        ctx = ToolContext(harness.scope(run), "c", progress)
        await tools[name].run(Raw(msgspec.json.encode(args)), ctx)

    (harness.work / "a").write_text("one")
    await call("read_file", "run-0", path="a")
    await call("write_file", "run-1", path="a", content="two")
    await call("patch", "run-1", path="a", old_string="two", new_string="three")
    await call("terminal", "run-2", command="echo four > a; echo new > b")
    kept = await harness.shadow.list(str(harness.work))
    assert [one.run for one in kept] == ["run-2", "run-1"]
    await harness.shadow.restore(kept[0], "s1")
    assert harness.files() == {"a": b"three"}
    await harness.shadow.restore(kept[1], "s1")
    assert harness.files() == {"a": b"one"}
    assert progress_texts == []


async def test_old_checkpoints_are_deleted(harness: CheckpointHarness):
    harness.shadow = harness.opened(snapshots=3, days=5)
    kept: list[Checkpoint] = []
    for number in range(5):
        (harness.work / "a").write_text(f"{number}")
        kept.append(await harness.take(f"{number}"))
        await harness.clock.advance(60)
    listed = await harness.shadow.list(str(harness.work))
    assert [one.reason for one in listed] == ["4", "3", "2"]
    with pytest.raises(UsageError, match="no longer exists"):
        await harness.shadow.restore(kept[0], "s1")
    await harness.clock.advance(timedelta(days=6).total_seconds())
    (harness.work / "a").write_text("later")
    await harness.take("later")
    assert [one.reason for one in await harness.shadow.list(str(harness.work))] == ["later"]
    await harness.shadow.restore((await harness.shadow.list(str(harness.work)))[0], "s1")
    assert (harness.work / "a").read_text() == "later"


async def test_store_size_is_limited(harness: CheckpointHarness):
    harness.shadow = harness.opened(limits=CheckpointLimits(total=300_000))
    for number in range(6):
        (harness.work / "noise").write_bytes(os.urandom(100_000))
        await harness.take(f"{number}")
        await harness.clock.advance(1)
    store = harness.root / "home" / "checkpoints" / "store" / "objects"
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) < 400_000
    listed = await harness.shadow.list(str(harness.work))
    assert 1 <= len(listed) < 6
    assert listed[0].reason == "5"


async def test_workspace_without_checkpoints_starts_fresh(harness: CheckpointHarness):
    """Its index must not refer to objects deleted with its checkpoints."""
    other = harness.root / "other"
    other.mkdir()
    (other / "b").write_text("b")
    (harness.work / "a").write_text("a")
    await harness.take()
    await harness.clock.advance(timedelta(days=8).total_seconds())
    await harness.shadow.take(str(other), "s1")
    assert await harness.shadow.list(str(harness.work)) == []
    first = await harness.take()
    (harness.work / "a").unlink()
    await harness.shadow.restore(first, "s1")
    assert (harness.work / "a").read_text() == "a"


async def test_failed_checkpoint_is_explained_and_does_not_block(harness: CheckpointHarness):
    without = harness.opened(git=None)
    progress_texts = await without.checkpoint_before(harness.scope("r"), NO_ARGS)
    assert "Checkpoints need git" in progress_texts
    small = harness.opened(limits=CheckpointLimits(total=10, file=1_000))
    (harness.work / "a").write_bytes(b"x" * 100)
    assert "larger than checkpoints may be" in await small.checkpoint_before(
        harness.scope("r"), NO_ARGS
    )
    assert await small.checkpoint_before(harness.scope("r2"), NO_ARGS) == ""
    for wide in ("/", str(harness.root), str(harness.root / "home"), "relative"):
        with pytest.raises(UsageError):
            await harness.shadow.take(wide, "s1")
    assert await harness.opened().list(str(harness.work)) == []


async def test_restore_does_not_follow_links(harness: CheckpointHarness):
    outside = harness.root / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (harness.work / "d").mkdir()
    (harness.work / "d" / "x").write_text("mine")
    first = await harness.take()
    (harness.work / "d" / "x").unlink()
    (harness.work / "d").rmdir()
    (harness.work / "d").symlink_to(outside)
    await harness.shadow.restore(first, "s1")
    assert (outside / "x").read_text() == "outside"
    assert (harness.work / "d" / "x").read_text() == "mine"


async def test_stale_git_lock_is_removed(harness: CheckpointHarness):
    (harness.work / "a").write_text("1")
    await harness.take()
    (index,) = (harness.root / "home/checkpoints/store/indexes").iterdir()
    lock = index.with_name(f"{index.name}.lock")
    lock.touch()
    now = SystemClock().now().timestamp()
    os.utime(lock, (now - 10**9, now - 10**9))
    (harness.work / "a").write_text("2")
    await harness.take()
    assert not lock.exists()
