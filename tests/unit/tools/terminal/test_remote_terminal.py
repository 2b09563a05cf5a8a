"""Commands on another machine, which has its own files."""

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
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from support.turns import assistant_message, tool_call

pytestmark = pytest.mark.slow


class OtherMachine:
    """Simulates the remote end with a local shell and another home."""

    name = "ssh"
    label = ""

    def __init__(self, home: Path) -> None:
        self._env = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    async def client_command(self, job: ProcessSpec, spawner: Spawner) -> ClientCommand:
        return ClientCommand(argv=("sh", "-c", BOOTSTRAP), env=self._env, folder=job.cwd)


@pytest.fixture
def remote_home(tmp_path: Path) -> Path:
    home = tmp_path / "over-there"
    (home / "project").mkdir(parents=True)
    return home


@pytest.fixture
def deps(
    deps: ToolCollaborators, sandbox: LocalSandbox, remote_home: Path, spawner: Spawner
) -> ToolCollaborators:
    return msgspec.structs.replace(
        deps,
        sandbox=RemoteSandbox(spawner, OtherMachine(remote_home), grace=0.2),
        local_sandbox=sandbox,
        remote_programs=True,
        remote_folder="~",
        python=lambda folder: "/no/such/python",
    )


@pytest.fixture
def spawner():
    with Spawner(grace=0.2) as spawner:
        yield spawner


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    """A workspace that exists only on this machine."""
    return Scope("default", "session-1", "run-1", str(tmp_path / "work-of-this-machine"))


async def test_commands_start_in_the_remote_home_and_keep_their_folder(call, remote_home: Path):
    first = await call("terminal", command="pwd")
    assert (first["output"], first["cwd"]) == (f"{remote_home}\n", str(remote_home))
    assert (await call("terminal", command="cd project && pwd"))["cwd"] == f"{remote_home}/project"
    assert (await call("terminal", command="pwd"))["output"] == f"{remote_home}/project\n"


@pytest.mark.parametrize("workdir", ["~/project", "project", "{remote_home}/project"])
async def test_workdir_applies_to_one_command(call, remote_home: Path, workdir: str):
    answer = await call("terminal", command="pwd", workdir=workdir.format(remote_home=remote_home))
    assert answer["output"] == f"{remote_home}/project\n"
    assert (await call("terminal", command="pwd"))["output"] == f"{remote_home}\n"


async def test_missing_remote_folder_is_reported(call):
    with pytest.raises(ToolError, match="No such file or directory"):
        await call("terminal", command="pwd", workdir="~/nowhere")


async def test_deleted_remote_folder_is_reset(call, remote_home: Path):
    """Both for commands and programs, with a note."""
    for tool, args in (("terminal", {"command": "pwd"}), ("execute_code", {"code": "1"})):
        await call("terminal", command="mkdir -p gone && cd gone && rmdir ../gone")
        with pytest.raises(ToolError, match="No such file or directory") as lost:
            await call(tool, **args)
        assert lost.value.hint == "The next command starts in ~ again."
        assert (await call("terminal", command="pwd"))["output"] == f"{remote_home}\n"


async def test_settings_name_the_initial_folder(
    deps: ToolCollaborators, scope: Scope, remote_home: Path
):
    tools = build_tools(msgspec.structs.replace(deps, remote_folder="~/project"))
    assert await _output(tools, scope, "pwd") == f"{remote_home}/project\n"


async def test_folder_is_restored_after_restart(
    deps: ToolCollaborators, scope: Scope, remote_home: Path
):
    """The folder cannot be checked from here."""
    made = tool_call("terminal", command="cd project")
    moved = {"output": "", "exit_code": 0, "error": None, "cwd": f"{remote_home}/project"}
    answer = Result("msg_1", made.id, (Text(msgspec.json.encode(moved).decode()),))
    tools = build_tools(deps)
    tools["terminal"].restore(scope.session, [assistant_message(made), answer])
    assert await _output(tools, scope, "pwd") == f"{remote_home}/project\n"


async def test_program_runs_with_the_remote_python(call, remote_home: Path):
    answer = await call("execute_code", code="import os; print(os.getcwd())")
    assert answer["output"] == f"{remote_home}\n"


async def test_file_tools_use_this_machine(call, scope: Scope, remote_home: Path):
    Path(scope.workspace).mkdir()
    (Path(scope.workspace) / "note").write_text("here")
    (remote_home / "note").write_text("over there")
    await call("terminal", command="pwd")
    assert (await call("read_file", path="note"))["content"] == "1|here"


async def _output(tools: dict[str, Tool], scope: Scope, command: str) -> str:
    async def quiet(text: str) -> None:
        pass

    arguments = Raw(msgspec.json.encode({"command": command}))
    output = await tools["terminal"].run(arguments, ToolContext(scope, "call-1", quiet))
    first = output.parts[0]
    assert isinstance(first, Text)
    return msgspec.json.decode(first.text)["output"]


async def test_output_may_contain_the_end_mark(call):
    command = (
        'printf "\\001%s " "$HERMES_JOB"; head -c 300000 /dev/zero | tr "\\0" x; echo; echo over'
    )
    answer = await call("terminal", command=command)
    assert (answer["exit_code"], answer["truncated"]) == (0, True)
    assert answer["output"].endswith("x\nover\n")
    assert Path(answer["full_output"]).stat().st_size > 300_000


class VerboseMachine(OtherMachine):
    """Prints a long banner without line ends."""

    async def client_command(self, job: ProcessSpec, spawner: Spawner) -> ClientCommand:
        greeting = "head -c 8000000 /dev/zero | tr '\\0' '\\a'"
        return ClientCommand(
            argv=("sh", "-c", f"{greeting}; {BOOTSTRAP}"), env=self._env, folder=job.cwd
        )


async def test_long_login_banner_is_not_kept_in_memory(remote_home: Path, spawner: Spawner):
    job = ProcessSpec(argv=("echo", "here"), cwd=str(remote_home), env={}, timeout=60)
    tracemalloc.start()
    try:
        done = await RemoteSandbox(spawner, VerboseMachine(remote_home), grace=0.2).run(job)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert done.output == b"here\n"
    assert peak < 4_000_000
