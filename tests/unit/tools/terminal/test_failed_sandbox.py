"""A failing sandbox is retried, and meanwhile no command runs with less isolation than approved."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.execution import Terminal
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.ports.tool import ToolContext
from hermes.sandbox.bubblewrap import find_bubblewrap
from hermes.sandbox.landlock import landlock_version
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators

LONG = 3_600.0
"""Seconds after which any backend is retried."""


class Machine:
    """A machine whose bubblewrap can be broken and repaired; `start_count` counts its starts."""

    def __init__(self, base: Path, spawner: Spawner, *, landlock: bool) -> None:
        self.clock = FakeClock()
        self._broken, self._counted = base / "broken", base / "counted"
        real = find_bubblewrap(os.environ["PATH"])
        assert real is not None
        program = base / "bwrap"
        program.write_text(
            f"#!/bin/sh\necho >> {self._counted}\n"
            f'[ -e {self._broken} ] && echo out of order >&2 && exit 1\nexec {real} "$@"\n'
        )
        program.chmod(0o755)
        home = Home(base / "home", base / "home")
        home.root.mkdir()
        env = Env({"HOME": str(base), "PATH": os.environ["PATH"]})
        parts = SandboxDeps(home, env, Terminal(), spawner, self.clock)
        version = landlock_version if landlock else lambda: 0
        self.sandboxes = Sandboxes(parts, str(program), landlock=version)
        self.sandbox = self.sandboxes.for_platform("cli")

    def break_bubblewrap(self) -> None:
        self._broken.touch()

    def repair(self) -> None:
        self._broken.unlink()

    @property
    def start_count(self) -> int:
        return len(self._counted.read_text().splitlines())

    @property
    def state(self) -> str:
        return self.sandboxes.describe("cli")


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as spawner:
        yield spawner


class Commands:
    """The terminal tool on that machine, and an approver that denies every request."""

    def __init__(self, machine: Machine, deps: ToolCollaborators, scope: Scope) -> None:
        self.asked: list[ApprovalRequest] = []
        self._scope = scope
        self._tool = build_tools(structs.replace(deps, sandbox=machine.sandbox))["terminal"]

    async def run(self, command: str) -> None:
        async def progress(text: str) -> None:
            """Ignore progress."""

        ctx = ToolContext(self._scope, "c", progress, self._rule)
        await self._tool.run(Raw(msgspec.json.encode({"command": command})), ctx)

    async def _rule(self, request: ApprovalRequest) -> Decision:
        if request.reaching is Isolation.INSIDE:
            return Decision(allowed=True)
        self.asked.append(request)
        return Decision(allowed=False, why="No.")


async def test_commands_need_approval_while_the_sandbox_fails(
    deps: ToolCollaborators,
    scope: Scope,
    tmp_path: Path,
    spawner: Spawner,
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO, "hermes.sandbox.strongest_sandbox")
    machine = Machine(tmp_path, spawner, landlock=False)
    commands = Commands(machine, deps, scope)
    machine.break_bubblewrap()
    await machine.sandbox.confinement()
    first = machine.start_count
    for count in (1, 2, 3):
        with pytest.raises(ToolError, match="No"):
            await commands.run("echo x > note")
        assert len(commands.asked) == count
    assert {one.reaching for one in commands.asked} == {Isolation.BEYOND}
    assert all("out of order" in one.reason for one in commands.asked)
    assert "Every command needs approval" in machine.state
    assert "out of order" in machine.state
    assert machine.start_count == first
    assert not Path(scope.workspace, "note").exists()

    machine.repair()
    await machine.clock.advance(LONG)
    outside = tmp_path / "outside"
    await commands.run(f"echo x > note; echo x > {outside}")
    assert Path(scope.workspace, "note").exists()
    assert not outside.exists()
    assert machine.state == "commands run in bubblewrap"
    assert len(commands.asked) == 3
    changes = [
        one for one in caplog.records if one.name.startswith("hermes.sandbox.strongest_sandbox")
    ]
    assert len(changes) == 2, caplog.text


@pytest.mark.slow
async def test_retries_are_limited(tmp_path: Path, spawner: Spawner):
    machine = Machine(tmp_path, spawner, landlock=False)
    machine.break_bubblewrap()
    await machine.sandbox.confinement()
    each = machine.start_count
    for _ in range(200):
        await machine.clock.advance(60.0)
        await machine.sandbox.confinement()
    assert 200 * 60 / LONG < machine.start_count / each < 40


async def test_job_is_refused_with_less_isolation_than_approved(
    tmp_path: Path, spawner: Spawner, scope: Scope
):
    machine = Machine(tmp_path, spawner, landlock=True)
    sandbox, note = machine.sandbox, Path(scope.workspace, "note")
    confinement = await sandbox.confinement()
    assert confinement.isolation == "bubblewrap"

    def job(wall: str) -> ProcessSpec:
        reach = ProcessPermissions(writable=(scope.workspace,), isolation=wall)
        argv, env = ("/bin/sh", "-c", "echo x >> note"), {"PATH": os.environ["PATH"]}
        return ProcessSpec(argv=argv, cwd=scope.workspace, env=env, timeout=60.0, permissions=reach)

    machine.break_bubblewrap()
    for _ in range(2):
        with pytest.raises(SandboxError, match="out of order"):
            await sandbox.run(job(confinement.isolation))
        with pytest.raises(SandboxError, match="out of order"):
            async with sandbox.open(job(confinement.isolation)) as process:
                await process.wait()
    assert not note.exists()
    assert "the weaker sandbox" in machine.state
    assert (await sandbox.confinement()).isolation == "landlock"
    assert (await sandbox.run(job("landlock"))).exit_code == 0
    assert note.read_text() == "x\n"


async def test_commands_need_approval_if_the_sandbox_is_incomplete(
    deps: ToolCollaborators, scope: Scope, tmp_path: Path, spawner: Spawner
):
    """Root owns system files, and landlock ignores file modes."""
    machine = Machine(tmp_path, spawner, landlock=True)
    machine.break_bubblewrap()
    commands = Commands(machine, deps, scope)
    if os.geteuid() != 0:
        await commands.run("true")
        return
    with pytest.raises(ToolError, match="No"):
        await commands.run("true")
    assert [one.reaching for one in commands.asked] == [Isolation.OPEN]
    assert "as if there were no sandbox" in machine.state
