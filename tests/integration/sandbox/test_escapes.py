"""Ways out that were found: each of them led past a wall once."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.ports.sandbox import ProcessExit, ProcessPermissions, ProcessResult, ProcessSpec
from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.filesystem_policy import (
    GUARDED,
    VISIBLE_IN_RUN,
    FilesystemPolicy,
    hidden_paths,
    startup_files,
)
from hermes.sandbox.isolated_sandbox import IsolatedSandbox, IsolationBackend
from hermes.sandbox.landlock import Landlock
from hermes.sandbox.spawner import Spawner, SpawnRequest
from hermes.schema.errors import SandboxError

pytestmark = pytest.mark.anyio
PATIENCE = 60.0
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


class Place:
    """A home that is not below /tmp, a folder to work in, and one that is nobody's business."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.work = self.home / "work"
        self.outside = base / "outside"
        for folder in (self.work, self.outside):
            folder.mkdir(parents=True)
        self.view = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=hidden_paths(self.home, root=True),
            shown=VISIBLE_IN_RUN,
            guarded=(*GUARDED, *startup_files(self.home)),
            person=str(self.home),
        )

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def job(self, command: str, **reach: object) -> ProcessSpec:
        allowed = ProcessPermissions(**({"writable": (str(self.work),)} | reach))  # type: ignore[arg-type]
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.home),
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }  # fmt: skip
        argv = ("/bin/bash", "-c", command)
        return ProcessSpec(argv=argv, cwd=str(self.work), env=env, timeout=PATIENCE, reach=allowed)

    def git(self, folder: Path, *words: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(
            ["git", *AUTHOR, *words], cwd=folder, env=env, capture_output=True, text=True,
            timeout=PATIENCE, check=True,
        )  # fmt: skip
        return done.stdout

    def repository(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.git(folder, "init", "-q")
        self.git(folder, "commit", "-q", "--allow-empty", "-m", "first")
        return folder / ".git"


@pytest.fixture
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-escapes-", dir=Path.home()))
    yield Place(base)
    shutil.rmtree(base, ignore_errors=True)


def bubblewrap(place: Place) -> IsolationBackend:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, place.view)


def landlock(place: Place) -> IsolationBackend:
    return Landlock(place.view)


Make = Callable[[Place], IsolationBackend]
WALLS = pytest.mark.parametrize("wall", [bubblewrap, landlock])


class Meddled:
    """A wall while somebody moves folders: `before` it looks at them, and `after` it did."""

    def __init__(
        self,
        wall: IsolationBackend,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.word = wall.name, wall.word
        self.guards, self.complete = wall.guards, wall.complete
        self._wall, self._before, self._after = wall, before, after

    def around(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        self._before()
        try:
            return self._wall.around(start, job)
        finally:
            self._after()

    def ended(self, how: ProcessExit) -> ProcessExit:
        return self._wall.ended(how)


async def run(door: Spawner, place: Place, command: str, **reach: object) -> ProcessResult:
    return await IsolatedSandbox(door, bubblewrap(place)).run(place.job(command, **reach))


@WALLS
async def test_a_folder_that_is_away_for_a_moment(wall: Make, place: Place, door: Spawner):
    """It is not there when the wall looks, and back when the command starts."""
    folder, away = place.work / "d", place.work / "away"
    folder.mkdir()
    meddled = Meddled(wall(place), lambda: folder.rename(away), lambda: away.rename(folder))
    command = f"echo out > {place.outside}/note"
    job = structs.replace(place.job(command), cwd=str(folder))
    with pytest.raises(SandboxError, match="No such file"):
        await IsolatedSandbox(door, meddled).run(job)
    assert [*place.outside.iterdir()] == []


@WALLS
async def test_a_folder_that_is_gone_after_the_look(wall: Make, place: Place, door: Spawner):
    folder = place.work / "d"
    folder.mkdir()
    meddled = Meddled(wall(place), after=lambda: folder.exists() and folder.rmdir())
    job = structs.replace(place.job(f"echo out > {place.outside}/note"), cwd=str(folder))
    if meddled.guards:
        with pytest.raises(SandboxError, match="No such file"):
            await IsolatedSandbox(door, meddled).run(job)
    else:
        done = await IsolatedSandbox(door, meddled).run(job)
        assert done.exit_code != 0
        assert b"No such file" in done.output
    assert [*place.outside.iterdir()] == []


@WALLS
async def test_a_folder_that_becomes_a_link_after_the_look(wall: Make, place: Place, door: Spawner):
    """What may be changed is what lay there, not what a link leads to by now."""
    folder = place.work / "d"
    folder.mkdir()

    def swap() -> None:
        folder.rename(place.work / "e")
        folder.symlink_to("../../outside")

    job = place.job(f"echo out > {place.outside}/note", writable=(str(folder),))
    try:
        done = await IsolatedSandbox(door, Meddled(wall(place), after=swap)).run(job)
    except SandboxError:
        pass
    else:
        assert done.exit_code != 0
    assert [*place.outside.iterdir()] == []


async def test_what_may_be_changed_does_not_grow_with_a_second_look(place: Place, door: Spawner):
    """A folder is gone for a moment, and by the second look a link is there."""
    folder = place.work / "d"
    folder.mkdir()

    def before() -> None:
        if not folder.exists():
            folder.symlink_to("../../outside")

    def after() -> None:
        if not folder.is_symlink():
            folder.rename(place.work / "e")

    meddled = Meddled(bubblewrap(place), before, after)
    job = place.job(f"echo out > {place.outside}/note", writable=(str(folder),))
    with pytest.raises(SandboxError, match="were moved while it was started"):
        await IsolatedSandbox(door, meddled).run(job)
    assert [*place.outside.iterdir()] == []


async def test_a_guarded_folder_that_becomes_a_link_shows_nothing(place: Place, door: Spawner):
    git = place.repository(place.work)
    place.write(".ssh/id", "SECRET")

    def swap() -> None:
        git.rename(place.work / "git2")
        git.symlink_to("../.ssh")

    wall = Meddled(bubblewrap(place), after=swap)
    job = place.job("cat ~/.ssh/*; echo x > ~/.ssh/new")
    with pytest.raises(SandboxError):
        assert b"SECRET" not in (await IsolatedSandbox(door, wall).run(job)).output
    assert [path.name for path in (place.home / ".ssh").iterdir()] == ["id"]


@WALLS
async def test_nothing_that_a_login_executes_can_be_made(wall: Make, place: Place, door: Spawner):
    """Neither changed nor, where it is missing, created: the home is the workspace."""
    place.write(".bashrc", "# mine\n")
    place.write("notes/old", "")
    command = (
        "cd ~; for name in .bashrc .bash_aliases .bash_profile .profile .zshenv .xprofile .envrc;"
        "do echo evil >> $name; done; mkdir .ssh .local bin .config; echo k > .ssh/authorized_keys;"
        "mkdir -p .local/bin bin; echo x > bin/git; echo x > .local/bin/git; mv .bashrc notes/;"
        "mv notes .zsh; echo new > notes/new"
    )
    reach = ProcessPermissions(writable=(str(place.home),))
    job = structs.replace(place.job(command), reach=reach)
    await IsolatedSandbox(door, wall(place)).run(job)
    assert sorted(path.name for path in place.home.iterdir()) == [".bashrc", "notes", "work"]
    assert (place.home / ".bashrc").read_text() == "# mine\n"
    assert (place.home / "notes/new").read_text() == "new\n"


async def test_a_secret_whose_folder_is_renamed(place: Place, door: Spawner):
    base = place.home.parent
    secrets = (".config/gh/hosts.yml", ".cargo/credentials.toml", ".ssh/id")
    for name in secrets:
        place.write(name, "SECRET")
    plain = structs.replace(place.view, person="")
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    sandbox = IsolatedSandbox(door, Bubblewrap(program, plain))
    moves = "cd ~; mv .config c1; mv .cargo c2; mv .ssh c3; cd ..; mv home h2; ls -A home"
    for command in (moves, "cd ~; cat c1/gh/* c2/* c3/* ../h2/.*/*; cat .config/gh/* .cargo/*"):
        done = await sandbox.run(place.job(command, writable=(str(base),)))
        assert b"SECRET" not in done.output
    assert all((place.home / name).read_text() == "SECRET" for name in secrets)


GIT_WORK = (
    "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
    "GIT_COMMITTER_EMAIL=a@b; cd ~/work; echo 1 > f; git add f; git commit -qm one; "
    "git checkout -qb side; echo 2 > f; git commit -qam two; git checkout -q -; echo 3 > g; "
    "git add g; git commit -qm three; git merge -q side -m merged; git rebase -q HEAD~1; "
    "git stash list; git tag t; git gc -q; git worktree add -q ../work/wt; "
    "git -C wt status --porcelain; git clone -q . copy; git -C copy log --oneline | wc -l"
)


async def test_git_works_in_a_guarded_repository(place: Place, door: Spawner):
    place.repository(place.work)
    done = await run(door, place, GIT_WORK)
    assert done.exit_code == 0, done.output.decode()
    assert b"sandbox:" not in done.output
    assert not [*place.work.rglob("*.set-aside")]
    assert "one" in place.git(place.work, "log", "--oneline")


def arm(git: str, sign: Path) -> str:
    return f"git --git-dir={git} config core.fsmonitor 'touch {sign}; false'"


async def test_settings_and_hooks_of_nested_repositories(place: Place, door: Spawner):
    sign = place.outside / "sign"
    for name in ("a", "deep/er/b"):
        git = place.repository(place.work / name)
        shutil.rmtree(git / "hooks")
        command = (
            f"cd {name}; {arm('.git', sign)}; mkdir -p .git/hooks; "
            f"printf '#!/bin/sh\ntouch {sign}\n' > .git/hooks/post-commit;"
            "chmod +x .git/hooks/*; mv .git g; cd ..; mv a c; mv er es"
        )
        await run(door, place, command)
        place.git(place.work / name, "status")
        place.git(place.work / name, "commit", "-q", "--allow-empty", "-m", "next")
        assert not sign.exists()


async def test_settings_from_another_folder(place: Place, door: Spawner):
    """Git would read the settings of the folder that a file of this name leads to."""
    git, sign = place.repository(place.work), place.outside / "sign"
    command = (
        "mkdir evil; cp -r .git/objects .git/refs evil/; cp .git/HEAD evil/; "
        f"cp .git/config evil/; {arm('evil', sign)}; echo ../evil > .git/commondir"
    )
    done = await run(door, place, command)
    place.git(place.work, "status")
    assert not sign.exists()
    assert not (git / "commondir").exists()
    assert (git / "commondir.set-aside").read_text() == "../evil\n"
    assert b"[sandbox: " in done.output
    assert b"commondir.set-aside" in done.output


async def test_a_working_folder_whose_git_is_a_file(place: Place, door: Spawner):
    main, sign = place.home / "main", place.outside / "sign"
    place.repository(main)
    shutil.rmtree(place.work)
    place.git(main, "worktree", "add", "-q", str(place.work))
    old = (place.work / ".git").read_text()
    command = (
        f"git init -q g3; {arm('g3/.git', sign)}; rm -f .git; mv .git x; "
        'echo "gitdir: $PWD/g3/.git" > .git; cat .git'
    )
    await run(door, place, command)
    place.git(place.work, "status")
    assert (place.work / ".git").read_text() == old
    assert not sign.exists()


@WALLS
async def test_a_new_repository_that_is_armed(wall: Make, place: Place, door: Spawner):
    """One that a command makes is its own, until it names programs for the owner's git."""
    sign = place.outside / "sign"
    command = (
        f"git init -q plain; git init -q src; {arm('src/.git', sign)}; "
        "printf '#!/bin/sh\n' > src/.git/hooks/pre-commit; "
        "git init -q --bare bare; git --git-dir=bare config alias.st '!evil'; "
        "mkdir link; ln -s ../src/.git link/.git; mkdir file; echo gitdir: ../src/.git > file/.git"
    )
    done = await IsolatedSandbox(door, wall(place)).run(place.job(command))
    for name in ("plain", "src"):
        place.git(place.work / name, "status")
    assert not sign.exists()
    aside = sorted(str(path.relative_to(place.work)) for path in place.work.rglob("*.set-aside"))
    wanted = ["bare/config", "link/.git", "src/.git/config", "src/.git/hooks"]
    assert aside == [f"{name}.set-aside" for name in wanted]
    assert done.output.count(b"[sandbox: ") == 4
    assert (place.work / "plain/.git/config").exists()


@pytest.mark.parametrize("name", ["plain", "a*[b]"])
async def test_hooks_are_guarded_whatever_the_folder_is_called(
    place: Place, door: Spawner, name: str
) -> None:
    sandbox = IsolatedSandbox(door, bubblewrap(place))
    await sandbox.run(place.job(f"git init -q '{name}'"))
    done = await sandbox.run(place.job(f"echo evil > '{name}/.git/hooks/pre-commit'"))
    assert b"Read-only file system" in done.output
    assert not (place.work / name / ".git/hooks/pre-commit").exists()


async def test_a_background_command_is_looked_after_too(place: Place, door: Spawner):
    git = place.repository(place.work)
    sandbox = IsolatedSandbox(door, bubblewrap(place))
    with anyio.fail_after(PATIENCE):
        async with sandbox.open(place.job("echo ../evil > .git/commondir")) as process:
            await process.wait()
    assert not (git / "commondir").exists()
