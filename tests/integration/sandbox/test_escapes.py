"""Regression tests for sandbox escapes."""

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

TIMEOUT = 60.0
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")


class SampleHome:
    """A home outside /tmp, a workspace, and a folder outside it."""

    def __init__(self, base: Path) -> None:
        self.home = base / "home"
        self.work = self.home / "work"
        self.outside = base / "outside"
        for folder in (self.work, self.outside):
            folder.mkdir(parents=True)
        self.policy = FilesystemPolicy(
            tmp=str(base / "private"),
            hidden=hidden_paths(self.home, root=True),
            shown=VISIBLE_IN_RUN,
            guarded=(*GUARDED, *startup_files(self.home)),
            user_home=str(self.home),
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
        return ProcessSpec(
            argv=argv, cwd=str(self.work), env=env, timeout=TIMEOUT, permissions=allowed
        )

    def git(self, folder: Path, *args: str) -> str:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(
            ["git", *AUTHOR, *args], cwd=folder, env=env, capture_output=True, text=True,
            timeout=TIMEOUT, check=True,
        )  # fmt: skip
        return done.stdout

    def repository(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.git(folder, "init", "-q")
        self.git(folder, "commit", "-q", "--allow-empty", "-m", "first")
        return folder / ".git"


@pytest.fixture
def sample() -> Iterator[SampleHome]:
    base = Path(tempfile.mkdtemp(prefix=".hermes-escapes-", dir=Path.home()))
    yield SampleHome(base)
    shutil.rmtree(base, ignore_errors=True)


def bubblewrap(sample: SampleHome) -> IsolationBackend:
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    return Bubblewrap(program, sample.policy)


def landlock(sample: SampleHome) -> IsolationBackend:
    return Landlock(sample.policy)


MakeBackend = Callable[[SampleHome], IsolationBackend]
BACKENDS = pytest.mark.parametrize("backend", [bubblewrap, landlock])


class RacingBackend:
    """Changes folders `before` and `after` the backend inspects them."""

    def __init__(
        self,
        backend: IsolationBackend,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.name, self.label = backend.name, backend.label
        self.protects_files, self.complete = backend.protects_files, backend.complete
        self._backend, self._before, self._after = backend, before, after

    def wrap(self, start: SpawnRequest, job: ProcessSpec) -> SpawnRequest:
        self._before()
        try:
            return self._backend.wrap(start, job)
        finally:
            self._after()

    def translate_exit(self, how: ProcessExit) -> ProcessExit:
        return self._backend.translate_exit(how)


async def run(spawner: Spawner, sample: SampleHome, command: str, **reach: object) -> ProcessResult:
    return await IsolatedSandbox(spawner, bubblewrap(sample)).run(sample.job(command, **reach))


@BACKENDS
async def test_folder_missing_during_setup(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    """The folder is missing during setup and back when the command starts."""
    folder, away = sample.work / "d", sample.work / "away"
    folder.mkdir()
    racing = RacingBackend(
        backend(sample), lambda: folder.rename(away), lambda: away.rename(folder)
    )
    command = f"echo out > {sample.outside}/note"
    job = structs.replace(sample.job(command), cwd=str(folder))
    with pytest.raises(SandboxError, match="No such file"):
        await IsolatedSandbox(spawner, racing).run(job)
    assert [*sample.outside.iterdir()] == []


@BACKENDS
async def test_folder_gone_after_setup(backend: MakeBackend, sample: SampleHome, spawner: Spawner):
    folder = sample.work / "d"
    folder.mkdir()
    racing = RacingBackend(backend(sample), after=lambda: folder.exists() and folder.rmdir())
    job = structs.replace(sample.job(f"echo out > {sample.outside}/note"), cwd=str(folder))
    if racing.protects_files:
        with pytest.raises(SandboxError, match="No such file"):
            await IsolatedSandbox(spawner, racing).run(job)
    else:
        done = await IsolatedSandbox(spawner, racing).run(job)
        assert done.exit_code != 0
        assert b"No such file" in done.output
    assert [*sample.outside.iterdir()] == []


@BACKENDS
async def test_folder_replaced_by_a_link_after_setup(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    """The original folder is writable, not the target of the new link."""
    folder = sample.work / "d"
    folder.mkdir()

    def swap() -> None:
        folder.rename(sample.work / "e")
        folder.symlink_to("../../outside")

    job = sample.job(f"echo out > {sample.outside}/note", writable=(str(folder),))
    try:
        done = await IsolatedSandbox(spawner, RacingBackend(backend(sample), after=swap)).run(job)
    except SandboxError:
        pass
    else:
        assert done.exit_code != 0
    assert [*sample.outside.iterdir()] == []


async def test_retry_does_not_widen_permissions(sample: SampleHome, spawner: Spawner):
    """A folder is missing at first, and a link at the second attempt."""
    folder = sample.work / "d"
    folder.mkdir()

    def before() -> None:
        if not folder.exists():
            folder.symlink_to("../../outside")

    def after() -> None:
        if not folder.is_symlink():
            folder.rename(sample.work / "e")

    racing = RacingBackend(bubblewrap(sample), before, after)
    job = sample.job(f"echo out > {sample.outside}/note", writable=(str(folder),))
    with pytest.raises(SandboxError, match="changed while it was starting"):
        await IsolatedSandbox(spawner, racing).run(job)
    assert [*sample.outside.iterdir()] == []


async def test_guarded_folder_replaced_by_a_link_reveals_nothing(
    sample: SampleHome, spawner: Spawner
):
    git = sample.repository(sample.work)
    sample.write(".ssh/id", "SECRET")

    def swap() -> None:
        git.rename(sample.work / "git2")
        git.symlink_to("../.ssh")

    backend = RacingBackend(bubblewrap(sample), after=swap)
    job = sample.job("cat ~/.ssh/*; echo x > ~/.ssh/new")
    with pytest.raises(SandboxError):
        assert b"SECRET" not in (await IsolatedSandbox(spawner, backend).run(job)).output
    assert [path.name for path in (sample.home / ".ssh").iterdir()] == ["id"]


@BACKENDS
async def test_startup_files_cannot_be_created(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    """Neither changed nor created, although the home is the workspace."""
    sample.write(".bashrc", "# mine\n")
    sample.write("notes/old", "")
    command = (
        "cd ~; for name in .bashrc .bash_aliases .bash_profile .profile .zshenv .xprofile .envrc;"
        "do echo evil >> $name; done; mkdir .ssh .local bin .config; echo k > .ssh/authorized_keys;"
        "mkdir -p .local/bin bin; echo x > bin/git; echo x > .local/bin/git; mv .bashrc notes/;"
        "mv notes .zsh; echo new > notes/new"
    )
    reach = ProcessPermissions(writable=(str(sample.home),))
    job = structs.replace(sample.job(command), permissions=reach)
    await IsolatedSandbox(spawner, backend(sample)).run(job)
    assert sorted(path.name for path in sample.home.iterdir()) == [".bashrc", "notes", "work"]
    assert (sample.home / ".bashrc").read_text() == "# mine\n"
    assert (sample.home / "notes/new").read_text() == "new\n"


async def test_secret_in_a_renamed_folder_stays_hidden(sample: SampleHome, spawner: Spawner):
    base = sample.home.parent
    secrets = (".config/gh/hosts.yml", ".cargo/credentials.toml", ".ssh/id")
    for name in secrets:
        sample.write(name, "SECRET")
    plain = structs.replace(sample.policy, user_home="")
    program = find_bubblewrap(os.environ["PATH"])
    assert program is not None
    sandbox = IsolatedSandbox(spawner, Bubblewrap(program, plain))
    moves = "cd ~; mv .config c1; mv .cargo c2; mv .ssh c3; cd ..; mv home h2; ls -A home"
    for command in (moves, "cd ~; cat c1/gh/* c2/* c3/* ../h2/.*/*; cat .config/gh/* .cargo/*"):
        done = await sandbox.run(sample.job(command, writable=(str(base),)))
        assert b"SECRET" not in done.output
    assert all((sample.home / name).read_text() == "SECRET" for name in secrets)


GIT_WORK = (
    "set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a "
    "GIT_COMMITTER_EMAIL=a@b; cd ~/work; echo 1 > f; git add f; git commit -qm one; "
    "git checkout -qb side; echo 2 > f; git commit -qam two; git checkout -q -; echo 3 > g; "
    "git add g; git commit -qm three; git merge -q side -m merged; git rebase -q HEAD~1; "
    "git stash list; git tag t; git gc -q; git worktree add -q ../work/wt; "
    "git -C wt status --porcelain; git clone -q . copy; git -C copy log --oneline | wc -l"
)


async def test_git_works_in_a_guarded_repository(sample: SampleHome, spawner: Spawner):
    sample.repository(sample.work)
    done = await run(spawner, sample, GIT_WORK)
    assert done.exit_code == 0, done.output.decode()
    assert b"sandbox:" not in done.output
    assert not [*sample.work.rglob("*.set-aside")]
    assert "one" in sample.git(sample.work, "log", "--oneline")


def set_fsmonitor(git: str, marker: Path) -> str:
    return f"git --git-dir={git} config core.fsmonitor 'touch {marker}; false'"


async def test_nested_repositories_are_protected(sample: SampleHome, spawner: Spawner):
    marker = sample.outside / "marker"
    for name in ("a", "deep/er/b"):
        git = sample.repository(sample.work / name)
        shutil.rmtree(git / "hooks")
        command = (
            f"cd {name}; {set_fsmonitor('.git', marker)}; mkdir -p .git/hooks; "
            f"printf '#!/bin/sh\ntouch {marker}\n' > .git/hooks/post-commit;"
            "chmod +x .git/hooks/*; mv .git g; cd ..; mv a c; mv er es"
        )
        await run(spawner, sample, command)
        sample.git(sample.work / name, "status")
        sample.git(sample.work / name, "commit", "-q", "--allow-empty", "-m", "next")
        assert not marker.exists()


async def test_commondir_is_set_aside(sample: SampleHome, spawner: Spawner):
    """Git would read the settings of the folder named in `commondir`."""
    git, marker = sample.repository(sample.work), sample.outside / "marker"
    command = (
        "mkdir evil; cp -r .git/objects .git/refs evil/; cp .git/HEAD evil/; "
        f"cp .git/config evil/; {set_fsmonitor('evil', marker)}; echo ../evil > .git/commondir"
    )
    done = await run(spawner, sample, command)
    sample.git(sample.work, "status")
    assert not marker.exists()
    assert not (git / "commondir").exists()
    assert (git / "commondir.set-aside").read_text() == "../evil\n"
    assert b"[sandbox: " in done.output
    assert b"commondir.set-aside" in done.output


async def test_worktree_git_file_is_protected(sample: SampleHome, spawner: Spawner):
    main, marker = sample.home / "main", sample.outside / "marker"
    sample.repository(main)
    shutil.rmtree(sample.work)
    sample.git(main, "worktree", "add", "-q", str(sample.work))
    old = (sample.work / ".git").read_text()
    command = (
        f"git init -q g3; {set_fsmonitor('g3/.git', marker)}; rm -f .git; mv .git x; "
        'echo "gitdir: $PWD/g3/.git" > .git; cat .git'
    )
    await run(spawner, sample, command)
    sample.git(sample.work, "status")
    assert (sample.work / ".git").read_text() == old
    assert not marker.exists()


@BACKENDS
async def test_planted_files_of_new_repositories_are_set_aside(
    backend: MakeBackend, sample: SampleHome, spawner: Spawner
):
    """A new repository is left alone until its settings name programs."""
    marker = sample.outside / "marker"
    command = (
        f"git init -q plain; git init -q src; {set_fsmonitor('src/.git', marker)}; "
        "printf '#!/bin/sh\n' > src/.git/hooks/pre-commit; "
        "git init -q --bare bare; git --git-dir=bare config alias.st '!evil'; "
        "mkdir link; ln -s ../src/.git link/.git; mkdir file; echo gitdir: ../src/.git > file/.git"
    )
    done = await IsolatedSandbox(spawner, backend(sample)).run(sample.job(command))
    for name in ("plain", "src"):
        sample.git(sample.work / name, "status")
    assert not marker.exists()
    aside = sorted(str(path.relative_to(sample.work)) for path in sample.work.rglob("*.set-aside"))
    wanted = ["bare/config", "link/.git", "src/.git/config", "src/.git/hooks"]
    assert aside == [f"{name}.set-aside" for name in wanted]
    assert done.output.count(b"[sandbox: ") == 4
    assert (sample.work / "plain/.git/config").exists()


@pytest.mark.parametrize("name", ["plain", "a*[b]"])
async def test_hooks_are_protected_for_any_folder_name(
    sample: SampleHome, spawner: Spawner, name: str
) -> None:
    sandbox = IsolatedSandbox(spawner, bubblewrap(sample))
    await sandbox.run(sample.job(f"git init -q '{name}'"))
    done = await sandbox.run(sample.job(f"echo evil > '{name}/.git/hooks/pre-commit'"))
    assert b"Read-only file system" in done.output
    assert not (sample.work / name / ".git/hooks/pre-commit").exists()


async def test_background_commands_are_checked_too(sample: SampleHome, spawner: Spawner):
    git = sample.repository(sample.work)
    sandbox = IsolatedSandbox(spawner, bubblewrap(sample))
    with anyio.fail_after(TIMEOUT):
        async with sandbox.open(sample.job("echo ../evil > .git/commondir")) as process:
            await process.wait()
    assert not (git / "commondir").exists()
