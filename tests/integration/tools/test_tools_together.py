"""The tools used together: find, read, change, run and check."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.ports.tool import ToolContext
from hermes.sandbox.child_env import EnvRules, child_env
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import find_shell

PATH = "/usr/local/bin:/usr/bin:/bin"
Call = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    (tmp_path / "work").mkdir()
    process = {"PATH": PATH, "HOME": str(tmp_path)}
    with Spawner() as spawner:
        deps = ToolCollaborators(
            sandbox=LocalSandbox(spawner),
            blobs=FileBlobs(tmp_path / "blobs"),
            clock=SystemClock(),
            env=lambda scope: child_env(EnvRules(process=process), scope),
            redact=lambda text: text,
            home=tmp_path,
            spill_folder=tmp_path / "spilled",
            shell=find_shell(PATH),
            rg=find_rg(PATH),
        )
        tools = build_tools(deps)

        async def run(name: str, session: str = "s", **args: Any) -> dict[str, Any]:
            async def progress(_: str) -> None:
                await anyio.lowlevel.checkpoint()

            ctx = ToolContext(Scope("p", session, "r", str(tmp_path / "work")), "c", progress)
            output = await tools[name].run(Raw(msgspec.json.encode(args)), ctx)
            part = output.parts[0]
            assert isinstance(part, Text)
            return msgspec.json.decode(part.text)

        yield run


async def test_bug_is_found_fixed_and_verified(call: Call):
    await call("write_file", path="calc/sum.sh", content="echo $(( $1 - $2 ))\n")
    found = await call("search_files", pattern=r"\$1 - \$2")
    assert found["matches"] == [
        {"path": "calc/sum.sh", "line": 1, "content": "echo $(( $1 - $2 ))"}
    ]
    await call("terminal", command="cd calc")
    assert (await call("terminal", command="sh sum.sh 2 3"))["output"] == "-1\n"
    assert (await call("read_file", path="sum.sh"))["content"] == "1|echo $(( $1 - $2 ))"
    patched = await call("patch", path="sum.sh", old_string="$1 - $2", new_string="$1 + $2")
    assert patched["strategy"] == "exact"
    assert (await call("terminal", command="sh sum.sh 2 3"))["output"] == "5\n"


async def test_parallel_sessions_are_isolated(call: Call, tmp_path: Path):
    """Forty sessions run in parallel; each sees only its own state."""
    seen: dict[str, tuple[str, str, str]] = {}

    async def run_session(session: str) -> None:
        await call("terminal", session, command=f"mkdir {session}; cd {session}")
        await call("todo", session, todos=[{"id": "1", "content": session}])
        shell = await call("terminal", session, command='basename "$PWD"; echo $HERMES_SESSION_ID')
        await call("write_file", session, path="mine", content=session)
        plan = await call("todo", session)
        seen[session] = shell["output"], plan["todos"][0]["content"], session

    names = [f"session{n}" for n in range(40)]
    async with anyio.create_task_group() as group:
        for name in names:
            group.start_soon(run_session, name)
    assert seen == {name: (f"{name}\n{name}\n", name, name) for name in names}
    for name in names:
        assert (tmp_path / "work" / name / "mine").read_text() == name


async def test_end_of_a_very_large_file(call: Call, tmp_path: Path):
    block = b"".join(b"line %07d\n" % n for n in range(100_000))
    with (tmp_path / "work" / "log").open("wb") as file:
        for _ in range(77):
            file.write(block)
    answer = await call("read_file", path="log", offset=-2)
    assert answer["content"] == "-2|line 0099998\n-1|line 0099999"
    assert answer["file_size"] > 100_000_000
