"""A sandbox that fails is tried again, and meanwhile no command runs with less than was decided."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.app.sandboxes import SandboxDeps, Sandboxes
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.sections.execution import Terminal
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec
from hermes.ports.tool import ToolContext
from hermes.sandbox.bubblewrap import find_bubblewrap
from hermes.sandbox.landlock import landlock_version
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import SandboxError, ToolError
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import ToolDeps, build_tools

pytestmark = pytest.mark.anyio
LONG = 3_600.0
"""Seconds after which any backend is tried again."""


class Machine:
    """One whose bubblewrap can be broken and mended; `starts` counts how often it was started."""

    def __init__(self, base: Path, door: Spawner, *, landlock: bool) -> None:
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
        parts = SandboxDeps(home, env, Terminal(), door, self.clock)
        version = landlock_version if landlock else lambda: 0
        self.sandboxes = Sandboxes(parts, str(program), landlock=version)
        self.sandbox = self.sandboxes.on("cli")

    def break_it(self) -> None:
        self._broken.touch()

    def mend_it(self) -> None:
        self._broken.unlink()

    @property
    def starts(self) -> int:
        return len(self._counted.read_text().splitlines())

    @property
    def state(self) -> str:
        return self.sandboxes.describe("cli")


@pytest.fixture
def door() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as door:
        yield door


class Commands:
    """The terminal tool in that machine, and somebody who refuses whatever they are asked for."""

    def __init__(self, machine: Machine, deps: ToolDeps, scope: Scope) -> None:
        self.asked: list[ApprovalRequest] = []
        self._scope = scope
        self._tool = build_tools(structs.replace(deps, sandbox=machine.sandbox))["terminal"]

    async def run(self, command: str) -> None:
        async def progress(text: str) -> None:
            """Nobody watches."""

        ctx = ToolContext(self._scope, "c", progress, self._rule)
        await self._tool.run(Raw(msgspec.json.encode({"command": command})), ctx)

    async def _rule(self, wish: ApprovalRequest) -> Decision:
        if wish.reaching is Isolation.INSIDE:
            return Decision(allowed=True)
        self.asked.append(wish)
        return Decision(allowed=False, why="No.")


async def test_while_the_sandbox_fails_every_command_is_asked_about(
    deps: ToolDeps, scope: Scope, tmp_path: Path, door: Spawner, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "hermes.app")
    machine = Machine(tmp_path, door, landlock=False)
    commands = Commands(machine, deps, scope)
    machine.break_it()
    await machine.sandbox.confinement()
    first = machine.starts
    for count in (1, 2, 3):
        with pytest.raises(ToolError, match="No"):
            await commands.run("echo x > note")
        assert len(commands.asked) == count
    assert {one.reaching for one in commands.asked} == {Isolation.BEYOND}
    assert all("out of order" in one.reason for one in commands.asked)
    assert "Every command needs approval" in machine.state
    assert "out of order" in machine.state
    assert machine.starts == first
    assert not Path(scope.workspace, "note").exists()

    machine.mend_it()
    await machine.clock.advance(LONG)
    outside = tmp_path / "outside"
    await commands.run(f"echo x > note; echo x > {outside}")
    assert Path(scope.workspace, "note").exists()
    assert not outside.exists()
    assert machine.state == "commands run in bubblewrap"
    assert len(commands.asked) == 3
    changes = [one for one in caplog.records if one.name.startswith("hermes.app")]
    assert len(changes) == 2, caplog.text


async def test_how_often_it_is_tried_is_bounded(tmp_path: Path, door: Spawner):
    machine = Machine(tmp_path, door, landlock=False)
    machine.break_it()
    await machine.sandbox.confinement()
    each = machine.starts
    for _ in range(200):
        await machine.clock.advance(60.0)
        await machine.sandbox.confinement()
    assert 200 * 60 / LONG < machine.starts / each < 40


async def test_a_job_is_refused_where_less_is_left_than_it_was_decided_on(
    tmp_path: Path, door: Spawner, scope: Scope
):
    machine = Machine(tmp_path, door, landlock=True)
    sandbox, note = machine.sandbox, Path(scope.workspace, "note")
    held = await sandbox.confinement()
    assert held.wall == "bubblewrap"

    def job(wall: str) -> ProcessSpec:
        reach = ProcessPermissions(writable=(scope.workspace,), wall=wall)
        argv, env = ("/bin/sh", "-c", "echo x >> note"), {"PATH": os.environ["PATH"]}
        return ProcessSpec(argv=argv, cwd=scope.workspace, env=env, timeout=60.0, reach=reach)

    machine.break_it()
    for _ in range(2):
        with pytest.raises(SandboxError, match="out of order"):
            await sandbox.run(job(held.wall))
        with pytest.raises(SandboxError, match="out of order"):
            async with sandbox.open(job(held.wall)) as process:
                await process.wait()
    assert not note.exists()
    assert "the weaker sandbox" in machine.state
    assert (await sandbox.confinement()).wall == "landlock"
    assert (await sandbox.run(job("landlock"))).exit_code == 0
    assert note.read_text() == "x\n"


async def test_commands_are_asked_about_where_the_sandbox_has_gaps(
    deps: ToolDeps, scope: Scope, tmp_path: Path, door: Spawner
):
    """Root owns the files of the system, and landlock does not know their modes."""
    machine = Machine(tmp_path, door, landlock=True)
    machine.break_it()
    commands = Commands(machine, deps, scope)
    if os.geteuid() != 0:
        await commands.run("true")
        return
    with pytest.raises(ToolError, match="No"):
        await commands.run("true")
    assert [one.reaching for one in commands.asked] == [Isolation.OPEN]
    assert "as if there were no sandbox" in machine.state
