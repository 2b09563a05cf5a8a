"""Which sandbox a profile gets, and how it is described to people."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.gateway import chat_workspace
from hermes.cli.verbs.doctor.execution import finding_of_line
from hermes.cli.verbs.doctor.finding import Grade
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import Terminal
from hermes.kit.clock import SystemClock
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec, Sandbox
from hermes.sandbox.backends import remote_folder, remote_location, runs_elsewhere
from hermes.sandbox.bubblewrap import MAX_HIDDEN_FILES
from hermes.sandbox.filesystem_policy import PathAccess, path_rules
from hermes.sandbox.home_policy import filesystem_policy
from hermes.sandbox.isolation_probe import IsolationProbe
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.sandbox.strongest_sandbox import APPROVAL_REQUIRED, PARTIAL_NOTE, StrongestSandbox
from hermes.schema.errors import ConfigError, SandboxError

pytestmark = pytest.mark.slow
PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[SandboxDeps]:
    person = tmp_path / "person"
    root = person / ".hermes"
    root.mkdir(parents=True)
    env = Env({"HOME": str(person), "PATH": PATH})
    with Spawner(grace=0.2) as door:
        yield SandboxDeps(Home(root, root), env, Terminal(), door, SystemClock())


def with_terminal(parts: SandboxDeps, **settings: object) -> SandboxDeps:
    return structs.replace(parts, terminal=Terminal(**settings))  # type: ignore[arg-type]


def sandbox_for(parts: SandboxDeps) -> Sandbox:
    return Sandboxes(parts).for_platform("cli")


def shell(parts: SandboxDeps, command: str, **reach: object) -> ProcessSpec:
    folder = str(parts.home.root.parent)
    allowed = ProcessPermissions(writable=(folder,), **reach)  # type: ignore[arg-type]
    argv = ("bash", "-c", command)
    return ProcessSpec(argv=argv, cwd=folder, env={"PATH": PATH}, timeout=20, permissions=allowed)


@pytest.mark.parametrize("own", ["default", "work"])
def test_workspace_in_a_home_does_not_open_blocked_files(parts: SandboxDeps, own: str):
    root = parts.home.root
    folder = root / "profiles" / "work"
    for name in ("config.yaml", "local-model/engine.so", "cache/fetched", "skill-bundles/a.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    home = Home(root, folder, own) if own == "work" else parts.home
    view = filesystem_policy(home, parts.env, parts.terminal)
    found = {
        one.path: one.access
        for one in path_rules(view, ProcessPermissions(writable=(str(folder),)))
    }
    assert found[str(folder)] is PathAccess.CHANGE
    for name in ("config.yaml", "local-model", "cache"):
        assert found[str(folder / name)] is PathAccess.HIDDEN
    if own == "work":
        assert found[str(folder / "skill-bundles")] is PathAccess.READ


async def test_strongest_sandbox_is_chosen_by_default(parts: SandboxDeps):
    sandbox = sandbox_for(parts)
    assert (sandbox.name, sandbox.isolation) == ("bubblewrap", "bubblewrap")
    work = parts.home.root.parent / "work"
    work.mkdir()
    command = "cat .hermes/.env; touch work/ok; touch /etc/x || exit 3"
    assert (await sandbox.run(shell(parts, command))).exit_code == 3
    assert (work / "ok").exists()


async def test_secrets_of_the_home_are_hidden_and_skills_visible(parts: SandboxDeps):
    root = parts.home.root
    (root / "profiles/other").mkdir(parents=True)
    (root / "skills").mkdir()
    for name in (
        *(".env", "hermes.db", "hermes.db-wal", "state.db", "state.db-shm", "gateway.sock"),
        *("profiles/other/.env", "new.file"),
    ):
        (root / name).write_text("SECRET")
    (root / "skills/SKILL.md").write_text("open")
    for backend in ("bubblewrap", "landlock"):
        sandbox = sandbox_for(with_terminal(parts, backend=backend))
        assert sandbox.isolation == backend
        done = await sandbox.run(
            shell(parts, "find .hermes -type f | xargs cat; echo x > .hermes/y")
        )
        assert b"SECRET" not in done.output
        assert b"open" in done.output
        assert not (root / "y").exists()


async def test_data_of_others_is_hidden(parts: SandboxDeps):
    for name in ("blobs/ab/letter", "output/out_1.txt", "output/processes/p", "sandbox/other"):
        path = parts.home.cache / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("SECRET")
    for backend in ("bubblewrap", "landlock"):
        sandbox = sandbox_for(with_terminal(parts, backend=backend))
        done = await sandbox.run(shell(parts, "find .hermes -type f | xargs cat; cat .hermes/*/*"))
        assert b"SECRET" not in done.output


@pytest.mark.slow  # The wall has a /dev of its own, and `make check` may keep its files there.
async def test_own_programs_can_search_long_output(parts: SandboxDeps):
    path = parts.home.cache / "output/out_1.txt"
    path.parent.mkdir(parents=True)
    path.write_text("found")
    job = structs.replace(shell(parts, f"cat {path}"), permissions=ProcessPermissions())
    for backend in ("bubblewrap", "landlock"):
        sandbox = sandbox_for(with_terminal(parts, backend=backend))
        assert (await sandbox.run(job)).output == b"found"
        for principal in ("chat:1", ""):
            theirs = await sandbox.run(structs.replace(job, principal=principal))
            assert b"found" not in theirs.output


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_command_cannot_start_in_a_hidden_folder(parts: SandboxDeps, backend: str):
    """Not even where homes lie below the `/tmp` that it does not see."""
    sandbox = sandbox_for(with_terminal(parts, backend=backend))
    for name in ("cache/output", "cache/sandbox/tmp", "profiles/other"):
        folder = parts.home.root / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "SECRET").write_text("x")
        job = structs.replace(shell(parts, "ls -a"), cwd=str(folder), principal="chat:1")
        with pytest.raises(SandboxError, match="is hidden from commands"):
            await sandbox.run(job)


async def test_command_can_start_in_its_temporary_folder(parts: SandboxDeps):
    folder = parts.home.cache / "sandbox" / "tmp" / "below"
    folder.mkdir(parents=True)
    job = structs.replace(shell(parts, "pwd; touch made"), cwd=str(folder))
    assert (await sandbox_for(parts).run(job)).output == b"/tmp/below\n"
    assert (folder / "made").exists()


def test_new_profile_opens_nothing(parts: SandboxDeps):
    view = filesystem_policy(parts.home, parts.env, parts.terminal)
    third = parts.home.root / "profiles" / "third"
    third.mkdir(parents=True)
    (third / ".env").write_text("x")
    found = {
        one.path: one.access for one in path_rules(view, ProcessPermissions(writable=(str(third),)))
    }
    assert found[str(third / ".env")] is PathAccess.HIDDEN


async def test_workspace_of_the_profile_is_writable(parts: SandboxDeps):
    """It lies in the home, of which nothing else may be."""
    folder = parts.home.path / "workspace"
    folder.mkdir()
    for backend in ("bubblewrap", "landlock"):
        job = shell(parts, f"echo x > {backend}; echo x > ../skills; echo x > ../../.profile")
        job = structs.replace(
            job, cwd=str(folder), permissions=ProcessPermissions(writable=(str(folder),))
        )
        await sandbox_for(with_terminal(parts, backend=backend)).run(job)
    assert {path.name for path in folder.iterdir()} == {"bubblewrap", "landlock"}
    assert not (parts.home.path / "skills").exists()
    assert not (parts.home.root.parent / ".profile").exists()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_temporary_files_are_separate_per_principal(parts: SandboxDeps, backend: str):
    sandbox = sandbox_for(with_terminal(parts, backend=backend))
    names = ("owner", "chat:1", "chat:2")
    find = f"cat $TMPDIR/*; cat {parts.home.cache}/sandbox/*/*; echo of-$1 > $TMPDIR/note"
    for name in (*names, *names):
        job = structs.replace(
            shell(parts, ""),
            argv=("bash", "-c", find, "bash", name),
            env={"PATH": PATH} | ({} if backend == "landlock" else {"TMPDIR": "/tmp"}),  # noqa: S108 - the wall's
            principal=name,
        )
        done = await sandbox.run(job)
        assert {word for word in done.output.split() if word.startswith(b"of-")} <= {
            f"of-{name}".encode()
        }
    assert b"of-chat:2" in done.output


async def test_temporary_files_are_kept_for_the_next_command(parts: SandboxDeps):
    sandbox = sandbox_for(parts)
    await sandbox.run(shell(parts, "echo kept > /tmp/note"))
    assert (await sandbox.run(shell(parts, "cat /tmp/note"))).output == b"kept\n"
    assert (parts.home.cache / "sandbox/tmp/note").read_text() == "kept\n"


async def test_approved_command_runs_outside_the_sandbox(parts: SandboxDeps, tmp_path: Path):
    sandbox = sandbox_for(parts)
    job = shell(parts, f"echo here > {tmp_path}/note", unsandboxed=True)
    assert (await sandbox.run(job)).exit_code == 0
    assert (tmp_path / "note").read_text() == "here\n"


async def test_named_sandbox_is_used_or_commands_are_refused(parts: SandboxDeps, tmp_path: Path):
    """Where the wall that was asked for cannot be had, no command runs without it."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho No permissions to create a new namespace >&2; exit 1\n")
    fake.chmod(0o755)
    walls = Sandboxes(with_terminal(parts, backend="bubblewrap"), str(fake))
    with pytest.raises(SandboxError, match=r"do not run.*No permissions"):
        await walls.for_platform("cli").run(shell(parts, "echo ran"))
    assert "No permissions" in (await walls.check())[0]


async def test_next_sandbox_is_used_if_the_first_fails(parts: SandboxDeps, tmp_path: Path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    walls = Sandboxes(parts, str(fake))
    sandbox = walls.for_platform("cli")
    assert sandbox.isolation == "bubblewrap"
    assert (await sandbox.run(shell(parts, "true"))).exit_code == 0
    assert (sandbox.name, sandbox.isolation) == ("landlock", "landlock")
    assert isinstance(sandbox, StrongestSandbox)
    assert await sandbox.refresh() is await sandbox.refresh()  # it is set up once
    expected = "commands run in landlock, the weaker sandbox: bubblewrap does not work here: 1"
    assert walls.describe("cli").startswith(expected)
    assert (PARTIAL_NOTE in walls.describe("cli")) == (os.geteuid() == 0)
    assert await walls.check() == walls.report() == [f"sandbox auto: {walls.describe('cli')}"]


async def test_missing_sandbox_is_reported(parts: SandboxDeps, tmp_path: Path):
    """Our own programs still run; `/status` and `hermes doctor` say what commands need, and why."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho No permissions to create a new namespace >&2; exit 1\n")
    fake.chmod(0o755)
    walls = Sandboxes(parts, str(fake), landlock=lambda: 0)
    sandbox = walls.for_platform("cli")
    assert (await sandbox.run(shell(parts, "echo ran"))).output == b"ran\n"
    assert (sandbox.name, sandbox.isolation) == ("local", "")
    (expected,) = await walls.check()
    assert APPROVAL_REQUIRED in expected
    assert "No permissions to create" in expected
    assert "the kernel has no landlock" in expected
    assert expected in walls.report()
    assert APPROVAL_REQUIRED in walls.describe("cli")
    finding = finding_of_line(expected)
    assert (finding.grade, APPROVAL_REQUIRED in finding.says, bool(finding.fix)) == (
        Grade.WARNING,
        True,
        True,
    )


async def test_slow_sandbox_trial_is_reported(parts: SandboxDeps, tmp_path: Path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexec sleep 60\n")
    fake.chmod(0o755)
    policy = filesystem_policy(parts.home, parts.env, parts.terminal)
    walls = IsolationProbe(parts.spawner, lambda: policy, str(fake), 0.2, clock=parts.clock)
    verdict = await walls.probe("bubblewrap")
    assert verdict.backend is None
    assert verdict.why == "bubblewrap did not answer within 0 s"


async def test_too_many_files_to_hide_do_not_weaken_the_sandbox(parts: SandboxDeps):
    folder = parts.home.root.parent / ".cargo"
    folder.mkdir()
    for number in range(MAX_HIDDEN_FILES + 1):
        (folder / f"credentials{number}").touch()
    sandbox = sandbox_for(parts)
    with pytest.raises(SandboxError, match="files would have to be hidden"):
        await sandbox.run(shell(parts, "true"))
    assert (await sandbox.confinement()).isolation == "bubblewrap"


DEEP_REPOSITORIES = f"mkdir -p {{/tmp/,}}many/{{1..60}}{'/d' * 60}/.git/objects"


async def test_unguardable_folders_refuse_only_their_own_commands(
    parts: SandboxDeps,
):
    """More mounts than bubblewrap takes, wherever a command may write: that command is refused."""
    work = parts.home.root.parent / "work"
    work.mkdir()
    job = shell(parts, f"cd {work} && {DEEP_REPOSITORIES} && echo done")
    allowed = structs.replace(job.permissions, writable=(str(work),))
    job = structs.replace(job, cwd=str(work), permissions=allowed)
    sandbox = sandbox_for(parts)
    assert (await sandbox.run(job)).output == b"done\n"
    next_job = structs.replace(job, argv=("echo", "ran"))
    with pytest.raises(SandboxError) as refused:
        await sandbox.run(next_job)
    assert (await sandbox.confinement()).isolation == "bubblewrap"
    assert "try again" in refused.value.hint
    (work / "many").rename(parts.home.root / "many")
    assert (await sandbox.run(next_job)).output == b"ran\n"
    assert sandbox.isolation == "bubblewrap"


async def test_each_platform_can_have_its_own_sandbox(parts: SandboxDeps):
    walls = Sandboxes(with_terminal(parts, backend="local", backend_by_platform={"chat": "auto"}))
    assert (walls.for_platform("cli").name, walls.for_platform("cli").isolation) == ("local", "")
    assert walls.for_platform("chat").isolation == "bubblewrap"
    assert walls.for_platform("chat") is walls.for_platform("chat")
    assert walls.local.name == "local"
    assert walls.report() == [
        "sandbox local: none: commands run as you, on this machine",
        "sandbox auto: commands run in bubblewrap",
    ]


def test_chats_work_in_a_folder_of_the_profile(tmp_path: Path):
    """Never in the user's own home, unless somebody said so."""
    home, there = Home(tmp_path, tmp_path), str(tmp_path / "there")
    assert chat_workspace(home, Config(), {"HOME": "/h"}) == str(tmp_path / "workspace")
    assert chat_workspace(home, Config(), {"MESSAGING_CWD": there}) == there
    named = Config(terminal=Terminal(cwd=there))
    assert chat_workspace(home, named, {"HOME": "/h"}) == there
    far = Config(terminal=Terminal(cwd=there, backend="ssh"))
    assert chat_workspace(home, far, {"HOME": "/h"}) == str(tmp_path / "workspace")
    with pytest.raises(ConfigError, match=r"MESSAGING_CWD is '~no-such-user/x'"):
        chat_workspace(home, named, {"MESSAGING_CWD": "~no-such-user/x"})
    with pytest.raises(ConfigError, match=r"`terminal\.cwd` is '~no-such-user'"):
        chat_workspace(home, Config(terminal=Terminal(cwd="~no-such-user")), {})


def test_remote_commands_start_in_the_configured_folder(parts: SandboxDeps):
    """The prompt names the machine, and the file tools use the same one."""
    named = {"backend_by_platform": {"chat": "ssh"}, "ssh_host": "garden", "ssh_user": "ann"}
    far = with_terminal(parts, **named)
    assert remote_location(far.terminal, "cli") == ""
    expected = "Commands run on ann@garden over ssh, and start in ~ there"
    assert remote_location(far.terminal, "chat") == expected
    assert remote_folder(far.terminal, "chat") == "~"
    assert runs_elsewhere(far.terminal, "chat")
    assert not runs_elsewhere(far.terminal, "cli")
    assert remote_folder(with_terminal(parts, **named, cwd="~/beds").terminal, "chat") == "~/beds"


@pytest.mark.parametrize("backend", ["modal", "daytona", "singularity", "dokcer"])
async def test_unsupported_backends_refuse_every_command(parts: SandboxDeps, backend: str):
    refusing = sandbox_for(with_terminal(parts, backend=backend))
    job = ProcessSpec(argv=("true",), cwd="/", env={}, timeout=1)
    with pytest.raises(SandboxError, match=f"'{backend}' is not .*cannot run") as error:
        await refusing.confinement()
    assert "bubblewrap" in error.value.hint
    with pytest.raises(SandboxError):
        await refusing.run(job)
    with pytest.raises(SandboxError):
        refusing.open(job)
    assert Sandboxes(with_terminal(parts, backend=backend)).report() == []


def test_remote_sandboxes_follow_the_settings(parts: SandboxDeps):
    walls = Sandboxes(
        with_terminal(
            parts, backend="ssh", ssh_host="box.example", backend_by_platform={"x": "docker"}
        )
    )
    assert (walls.for_platform("cli").name, walls.for_platform("x").name) == ("ssh", "docker")
    assert walls.local.isolation == "bubblewrap"
    assert walls.describe("cli") == "commands run on box.example, over ssh"
    assert walls.describe("x") == "commands run in a container (docker)"
