"""Checkpoints with a real git: what was there comes back, and the user's own repository is left."""

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
from hermes.tools.catalog import ToolDeps, build_tools
from hermes.tools.checkpoints.git_checkpoints import CheckpointDeps, GitCheckpoints, RetentionPolicy
from hermes.tools.checkpoints.repository import CheckpointLimits, find_git
from hermes.tools.paths import SessionPaths
from hermes.tools.terminal.shell import find_shell

pytestmark = pytest.mark.anyio

PATH = "/usr/local/bin:/usr/bin:/bin"


class House:
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
def house(tmp_path: Path) -> Iterator[House]:
    with Spawner() as door:
        yield House(tmp_path, door)


async def test_everything_comes_back_and_that_can_be_undone(house: House):
    work = house.work
    (work / "sub").mkdir()
    (work / "a.txt").write_bytes(b"one\r\ntwo\n")
    (work / "sub" / "program").write_text("#!/bin/sh\n")
    (work / "sub" / "program").chmod(0o755)
    (work / "link").symlink_to("a.txt")
    (work / os.fsdecode(b"od\xffd")).write_bytes(b"\0\xff")
    (work / "turns").write_text("a file")
    before = house.files()
    first = await house.take()
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
    after = house.files()
    done = await house.shadow.restore(first, "s1")
    assert house.files() == before
    assert (done.written, done.removed, done.failed) == (5, 2, ())
    assert not (work / "new").exists()
    assert (work / "sub" / "program").stat().st_mode & 0o111
    kept = await house.shadow.list(str(work))
    assert [one.id for one in kept] == [done.before.id, first.id]
    await house.shadow.restore(done.before, "s1")
    assert house.files() == after


async def test_the_users_own_repository_is_not_touched(house: House):
    work = house.work
    await house.git("init", "-q")
    (work / ".gitignore").write_text("ignored/\n*.log\n")
    (work / ".gitattributes").write_text("* text eol=crlf\n*.f filter=evil\n")
    await house.git("config", "filter.evil.clean", f"touch {house.root}/ran; cat")
    (work / "a.f").write_text("one\n")
    await house.git("add", "-A")
    await house.git("-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "c")
    (house.root / "ran").unlink()
    (work / "ignored").mkdir()
    (work / "ignored" / "x").write_text("1")
    (work / "y.log").write_text("1")
    mine = {
        path: path.read_bytes() for path in sorted((work / ".git").rglob("*")) if path.is_file()
    }
    first = await house.take()
    (work / "a.f").write_text("two\n")
    (work / "y.log").write_text("2")
    (work / "ignored" / "x").write_text("2")
    await house.shadow.restore(first, "s1")
    assert (work / "a.f").read_bytes() == b"one\n"
    assert (work / "y.log").read_text() == (work / "ignored" / "x").read_text() == "2"
    assert not (house.root / "ran").exists()
    assert mine == {
        path: path.read_bytes() for path in sorted((work / ".git").rglob("*")) if path.is_file()
    }


async def test_repositories_inside_are_kept_too(house: House):
    (house.work / "lib").mkdir()
    await house.git("init", "-q", where="lib")
    (house.work / "lib" / "x").write_text("one")
    (house.work / "y").write_text("one")
    first = await house.take()
    (house.work / "lib" / "x").write_text("two")
    (house.work / "lib" / "z").write_text("new")
    (house.work / "y").write_text("two")
    done = await house.shadow.restore(first, "s1")
    assert (done.written, done.removed) == (2, 1)
    assert (house.work / "lib" / "x").read_text() == (house.work / "y").read_text() == "one"
    assert (house.work / "lib" / ".git" / "HEAD").is_file()


async def test_large_and_closed_files_are_left_alone(house: House):
    house.shadow = house.opened(limits=CheckpointLimits(file=1_000))
    (house.work / "large").write_bytes(b"x" * 1_001)
    (house.work / "closed.key").write_text("secret-of-ours")
    (house.work / ".env").write_text("KEY=value-of-theirs")
    (house.work / "grows").write_text("small")
    first = await house.take()
    (house.work / "large").write_text("small by now")
    (house.work / "grows").write_bytes(b"y" * 2_000)
    done = await house.shadow.restore(first, "s1")
    assert (house.work / "large").read_text() == "small by now"
    assert (house.work / "closed.key").read_text() == "secret-of-ours"
    assert (house.work / "grows").read_text() == "small"
    assert done.failed == ()
    objects = await house.git("--git-dir", str(house.root / "home/checkpoints/store"), "cat-file",
                              "--batch-all-objects", "--batch")  # fmt: skip
    assert b"secret-of-ours" not in objects
    assert b"value-of-theirs" not in objects


async def test_a_run_is_kept_once_and_before_its_first_change(house: House):
    (house.work / "a").write_text("one")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(house.shadow.checkpoint_before, house.scope("run-1"))
    (house.work / "a").write_text("two")
    assert await house.shadow.checkpoint_before(house.scope("run-1")) == ""
    assert await house.shadow.checkpoint_before(house.scope("run-2")) == ""
    second, first = await house.shadow.list(str(house.work))
    assert (first.run, second.run) == ("run-1", "run-2")
    await house.shadow.restore(first, "s1")
    assert (house.work / "a").read_text() == "one"


async def test_tools_that_change_files_keep_them_first(house: House):
    deps = ToolDeps(
        sandbox=house.sandbox,
        blobs=FileBlobs(house.root / "blobs"),
        clock=house.clock,
        env=lambda _: {"PATH": PATH},
        redact=str,
        home=house.root / "home",
        spill_folder=house.root / "spilled",
        shell=find_shell(PATH),
        rg=None,
        checkpoints=house.shadow,
    )
    tools = build_tools(deps)
    said: list[str] = []

    async def progress(text: str) -> None:
        said.append(text)

    async def call(name: str, run: str, **args: str) -> None:
        ctx = ToolContext(house.scope(run), "c", progress)
        await tools[name].run(Raw(msgspec.json.encode(args)), ctx)

    (house.work / "a").write_text("one")
    await call("read_file", "run-0", path="a")
    await call("write_file", "run-1", path="a", content="two")
    await call("patch", "run-1", path="a", old_string="two", new_string="three")
    await call("terminal", "run-2", command="echo four > a; echo new > b")
    kept = await house.shadow.list(str(house.work))
    assert [one.run for one in kept] == ["run-2", "run-1"]
    await house.shadow.restore(kept[0], "s1")
    assert house.files() == {"a": b"three"}
    await house.shadow.restore(kept[1], "s1")
    assert house.files() == {"a": b"one"}
    assert said == []


async def test_what_is_too_much_goes(house: House):
    house.shadow = house.opened(snapshots=3, days=5)
    kept: list[Checkpoint] = []
    for number in range(5):
        (house.work / "a").write_text(f"{number}")
        kept.append(await house.take(f"{number}"))
        await house.clock.advance(60)
    listed = await house.shadow.list(str(house.work))
    assert [one.reason for one in listed] == ["4", "3", "2"]
    with pytest.raises(UsageError, match="no longer exists"):
        await house.shadow.restore(kept[0], "s1")
    await house.clock.advance(timedelta(days=6).total_seconds())
    (house.work / "a").write_text("later")
    await house.take("later")
    assert [one.reason for one in await house.shadow.list(str(house.work))] == ["later"]
    await house.shadow.restore((await house.shadow.list(str(house.work)))[0], "s1")
    assert (house.work / "a").read_text() == "later"


async def test_the_store_stays_within_its_size(house: House):
    house.shadow = house.opened(limits=CheckpointLimits(total=300_000))
    for number in range(6):
        (house.work / "noise").write_bytes(os.urandom(100_000))
        await house.take(f"{number}")
        await house.clock.advance(1)
    store = house.root / "home" / "checkpoints" / "store" / "objects"
    assert sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) < 400_000
    listed = await house.shadow.list(str(house.work))
    assert 1 <= len(listed) < 6
    assert listed[0].reason == "5"


async def test_a_workspace_forgotten_for_long_is_kept_anew(house: House):
    """Its index must not remember what was cleared away with its checkpoints."""
    other = house.root / "other"
    other.mkdir()
    (other / "b").write_text("b")
    (house.work / "a").write_text("a")
    await house.take()
    await house.clock.advance(timedelta(days=8).total_seconds())
    await house.shadow.take(str(other), "s1")
    assert await house.shadow.list(str(house.work)) == []
    first = await house.take()
    (house.work / "a").unlink()
    await house.shadow.restore(first, "s1")
    assert (house.work / "a").read_text() == "a"


async def test_what_cannot_be_kept_says_why_and_is_not_in_the_way(house: House):
    without = house.opened(git=None)
    said = await without.checkpoint_before(house.scope("r"))
    assert "Checkpoints need git" in said
    small = house.opened(limits=CheckpointLimits(total=10, file=1_000))
    (house.work / "a").write_bytes(b"x" * 100)
    assert "larger than checkpoints may be" in await small.checkpoint_before(house.scope("r"))
    assert await small.checkpoint_before(house.scope("r2")) == ""
    for wide in ("/", str(house.root), str(house.root / "home"), "relative"):
        with pytest.raises(UsageError):
            await house.shadow.take(wide, "s1")
    assert await house.opened().list(str(house.work)) == []


async def test_a_link_that_leads_out_is_not_followed_back(house: House):
    outside = house.root / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (house.work / "d").mkdir()
    (house.work / "d" / "x").write_text("mine")
    first = await house.take()
    (house.work / "d" / "x").unlink()
    (house.work / "d").rmdir()
    (house.work / "d").symlink_to(outside)
    await house.shadow.restore(first, "s1")
    assert (outside / "x").read_text() == "outside"
    assert (house.work / "d" / "x").read_text() == "mine"


async def test_a_lock_of_a_git_that_was_killed_is_taken_away(house: House):
    (house.work / "a").write_text("1")
    await house.take()
    (index,) = (house.root / "home/checkpoints/store/indexes").iterdir()
    lock = index.with_name(f"{index.name}.lock")
    lock.touch()
    now = SystemClock().now().timestamp()
    os.utime(lock, (now - 10**9, now - 10**9))
    (house.work / "a").write_text("2")
    await house.take()
    assert not lock.exists()
