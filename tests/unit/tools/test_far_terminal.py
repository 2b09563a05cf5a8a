"""Commands on a machine with other files: they begin where that machine says, and stay there."""

import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.ports.sandbox import ProcessSpec
from hermes.ports.tool import Tool, ToolContext
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.remote import BOOTSTRAP, ClientCommand, RemoteSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Result, Text
from hermes.schema.scope import Scope
from hermes.tools.catalog import ToolDeps, build_tools
from support.turns import assistant_message, tool_call

pytestmark = pytest.mark.anyio


class OtherMachine:
    """The far end as a shell of its own here, with another home."""

    name = "ssh"
    word = ""

    def __init__(self, home: Path) -> None:
        self._env = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    async def call(self, job: ProcessSpec, door: Spawner) -> ClientCommand:
        return ClientCommand(argv=("sh", "-c", BOOTSTRAP), env=self._env, folder=job.cwd)


@pytest.fixture
def there(tmp_path: Path) -> Path:
    home = tmp_path / "over-there"
    (home / "project").mkdir(parents=True)
    return home


@pytest.fixture
def deps(deps: ToolDeps, sandbox: LocalSandbox, there: Path, door: Spawner) -> ToolDeps:
    return msgspec.structs.replace(
        deps,
        sandbox=RemoteSandbox(door, OtherMachine(there), grace=0.2),
        near=sandbox,
        elsewhere=True,
        far="~",
        python=lambda folder: "/no/such/python",
    )


@pytest.fixture
def door():
    with Spawner(grace=0.2) as door:
        yield door


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A workspace that only this machine would have."""
    return Scope("default", "session-1", "run-1", str(tmp_path / "work-of-this-machine"))


async def test_it_begins_in_the_home_over_there_and_stays_where_it_went(call, there: Path):
    first = await call("terminal", command="pwd")
    assert (first["output"], first["cwd"]) == (f"{there}\n", str(there))
    assert (await call("terminal", command="cd project && pwd"))["cwd"] == f"{there}/project"
    assert (await call("terminal", command="pwd"))["output"] == f"{there}/project\n"


@pytest.mark.parametrize("workdir", ["~/project", "project", "{there}/project"])
async def test_a_folder_for_one_command(call, there: Path, workdir: str):
    told = await call("terminal", command="pwd", workdir=workdir.format(there=there))
    assert told["output"] == f"{there}/project\n"
    assert (await call("terminal", command="pwd"))["output"] == f"{there}\n"


async def test_a_folder_that_is_not_there(call):
    with pytest.raises(ToolError, match="No such file or directory"):
        await call("terminal", command="pwd", workdir="~/nowhere")


async def test_a_folder_that_is_gone_keeps_nobody_from_going_on(call, there: Path):
    """Neither commands nor programs, and it is told."""
    for tool, args in (("terminal", {"command": "pwd"}), ("execute_code", {"code": "1"})):
        await call("terminal", command="mkdir -p gone && cd gone && rmdir ../gone")
        with pytest.raises(ToolError, match="No such file or directory") as lost:
            await call(tool, **args)
        assert lost.value.hint == "The next command starts in ~ again."
        assert (await call("terminal", command="pwd"))["output"] == f"{there}\n"


async def test_the_settings_name_where_commands_begin(deps: ToolDeps, scope: Scope, there: Path):
    tools = build_tools(msgspec.structs.replace(deps, far="~/project"))
    assert await _said(tools, scope, "pwd") == f"{there}/project\n"


async def test_after_a_restart_it_stands_where_it_stood(deps: ToolDeps, scope: Scope, there: Path):
    """Nobody here can look whether the folder is still there."""
    made = tool_call("terminal", command="cd project")
    moved = {"output": "", "exit_code": 0, "error": None, "cwd": f"{there}/project"}
    told = Result("msg_1", made.id, (Text(msgspec.json.encode(moved).decode()),))
    tools = build_tools(deps)
    tools["terminal"].restore(scope.session, [assistant_message(made), told])
    assert await _said(tools, scope, "pwd") == f"{there}/project\n"


async def test_a_program_is_run_by_the_python_over_there(call, there: Path):
    told = await call("execute_code", code="import os; print(os.getcwd())")
    assert told["output"] == f"{there}\n"


async def test_files_are_those_of_this_machine(call, scope: Scope, there: Path):
    Path(scope.workspace).mkdir()
    (Path(scope.workspace) / "note").write_text("here")
    (there / "note").write_text("over there")
    await call("terminal", command="pwd")
    assert (await call("read_file", path="note"))["content"] == "1|here"


async def _said(tools: dict[str, Tool], scope: Scope, command: str) -> str:
    async def quiet(text: str) -> None:
        pass

    asked = Raw(msgspec.json.encode({"command": command}))
    output = await tools["terminal"].run(asked, ToolContext(scope, "call-1", quiet))
    first = output.parts[0]
    assert isinstance(first, Text)
    return msgspec.json.decode(first.text)["output"]


async def test_a_command_may_print_what_marks_the_end(call):
    command = (
        'printf "\\001%s " "$HERMES_JOB"; head -c 300000 /dev/zero | tr "\\0" x; echo; echo over'
    )
    told = await call("terminal", command=command)
    assert (told["exit_code"], told["truncated"]) == (0, True)
    assert told["output"].endswith("x\nover\n")
    assert Path(told["full_output"]).stat().st_size > 300_000


class Talkative(OtherMachine):
    """Its greeting is long, and has no lines."""

    async def call(self, job: ProcessSpec, door: Spawner) -> ClientCommand:
        greeting = "head -c 8000000 /dev/zero | tr '\\0' '\\a'"
        return ClientCommand(
            argv=("sh", "-c", f"{greeting}; {BOOTSTRAP}"), env=self._env, folder=job.cwd
        )


async def test_a_long_greeting_is_not_held_in_memory(there: Path, door: Spawner):
    job = ProcessSpec(argv=("echo", "here"), cwd=str(there), env={}, timeout=60)
    tracemalloc.start()
    try:
        done = await RemoteSandbox(door, Talkative(there), grace=0.2).run(job)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.output == b"here\n"
    assert peak < 4_000_000
