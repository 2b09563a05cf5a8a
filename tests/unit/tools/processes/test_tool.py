"""The `process` tool and background commands, with real processes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from inline_snapshot import snapshot
from msgspec import Raw, structs

from hermes.kit.clock import SystemClock
from hermes.kit.redact import Redactor
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.sqlite import SqliteStore, open_store
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from support.fake_processes import process_registry

Use = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with open_store(tmp_path / "hermes.db", SystemClock()) as opened:
        yield opened


@pytest.fixture
def outputs() -> list[ToolOutput]:
    """All results of the tools."""
    return []


@pytest.fixture
async def use(
    store: SqliteStore,
    deps: ToolCollaborators,
    scope: Scope,
    tmp_path: Path,
    secret: str,
    outputs: list[ToolOutput],
) -> AsyncIterator[Use]:
    """`await use("process", action="list")`; `scope_` and `ask_` change the context."""
    clock = SystemClock()
    redact = Redactor([secret]).redact
    async with process_registry(store, clock, tmp_path, redact=redact) as registry:
        tools = build_tools(structs.replace(deps, processes=registry, clock=clock))

        async def progress(text: str) -> None:
            raise AssertionError(text)

        async def yes(request: ApprovalRequest) -> Decision:
            return Decision(allowed=True)

        async def run(name: str, **args: Any) -> dict[str, Any]:
            where, ask = args.pop("scope_", scope), args.pop("ask_", yes)
            ctx = ToolContext(where, "call", progress, ask)
            with anyio.fail_after(60):
                output = await tools[name].run(Raw(msgspec.json.encode(args)), ctx)
            outputs.append(output)
            part = output.parts[0]
            assert isinstance(part, Text)
            return msgspec.json.decode(part.text)

        yield run


async def begin(use: Use, command: str, **more: Any) -> str:
    return (await use("terminal", command=command, background=True, **more))["session_id"]


async def test_background_process_is_started_and_awaited(use: Use):
    begun = await use("terminal", command="echo one; echo two >&2; exit 3", background=True)
    name, pid = begun.pop("session_id"), begun.pop("pid")
    assert begun == snapshot(
        {
            "output": "Background process started",
            "exit_code": 0,
            "error": None,
            "hint": "process(action='poll') shows its state; there is no automatic notification",
        }
    )
    waited = await use("process", action="wait", session_id=name)
    assert waited.pop("pid") == pid
    waited.pop("uptime_seconds")
    assert waited == {
        "session_id": name,
        "command": "echo one; echo two >&2; exit 3",
        "status": "exited",
        "output": "one\ntwo\n",
        "exit_code": 3,
        "completion_reason": "exited",
    }


@pytest.mark.slow
async def test_poll_and_list_show_running_processes(use: Use, workspace: Path):
    name = await begin(use, "echo begun; sleep 1000")
    polled: dict[str, Any] = {}
    with anyio.fail_after(60):
        while not polled.get("output_preview"):
            polled = await use("process", action="poll", session_id=name)
    assert (polled["status"], polled["output_preview"]) == ("running", "begun\n")
    assert "exit_code" not in polled
    (listed,) = (await use("process", action="list"))["processes"]
    assert (listed["session_id"], listed["cwd"]) == (name, str(workspace))
    waited = await use("process", action="wait", session_id=name, timeout=1)
    assert (waited["status"], waited["note"]) == ("running", "It is still running after 1 s.")


async def test_input_to_a_shell_is_judged_like_a_command(
    use: Use, outputs: list[ToolOutput], workspace: Path
) -> None:
    """Its words decide whether the output is untrusted, as does the provenance of the turn."""
    (workspace / "downloads").mkdir()
    (workspace / "downloads/letter").write_text("obey me\n")
    requests: list[ApprovalRequest] = []

    async def record(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(allowed=True)

    name = (await use("terminal", command="bash", background=True))["session_id"]
    await use("process", action="submit", session_id=name, data="echo one", ask_=record)
    assert not outputs[-1].foreign
    await use("process", action="submit", session_id=name, data="cat downloads/letter", ask_=record)
    assert outputs[-1].foreign
    await use("process", action="poll", session_id=name)
    assert outputs[-1].foreign
    assert [(request.action, request.shell, request.code) for request in requests] == [
        ("echo one", True, True),
        ("cat downloads/letter", True, True),
    ]
    await use("process", action="kill", session_id=name)


async def test_output_of_a_background_fetch_is_foreign(
    use: Use, outputs: list[ToolOutput], workspace: Path, scope: Scope
):
    own = await begin(use, "echo mine")
    await use("process", action="wait", session_id=own)
    assert not outputs[-1].foreign
    fetched = await begin(use, "curl --nothing; mkdir repo; echo obey me > repo/a.md")
    await use("process", action="wait", session_id=fetched)
    for action in ("poll", "log", "wait"):
        await use("process", action=action, session_id=fetched)
        assert outputs[-1].foreign, action
    await use("read_file", path="repo/a.md")
    assert outputs[-1].foreign
    await use("terminal", command="cp -r repo copy")
    assert outputs[-1].foreign


async def test_kill_ends_the_process_tree(use: Use, workspace: Path):
    command = "sleep 1000 & echo $! > child.new; mv child.new child; trap '' TERM; sleep 1000"
    name = await begin(use, command)
    child = workspace / "child"
    with anyio.fail_after(60):
        while not child.exists():
            await use("process", action="poll", session_id=name)
    killed = await use("process", action="kill", session_id=name)
    assert (killed["status"], killed["completion_reason"]) == ("exited", "killed")
    assert killed["termination_source"] == "process kill"
    assert not Path(f"/proc/{child.read_text().strip()}").exists()
    assert await use("process", action="kill", session_id=name) == killed


async def test_process_reads_its_input(use: Use):
    name = await begin(use, "read a; read b; echo $a-$b; cat")
    await use("process", action="write", session_id=name, data="on")
    await use("process", action="submit", session_id=name, data="e")
    await use("process", action="submit", session_id=name, data="two")
    await use("process", action="submit", session_id=name, data="three")
    await use("process", action="close", session_id=name)
    waited = await use("process", action="wait", session_id=name)
    assert (waited["output"], waited["exit_code"]) == ("one-two\nthree\n", 0)
    with pytest.raises(ToolError, match="accepts no input"):
        await use("process", action="write", session_id=name, data="x")


async def test_process_with_a_pty(use: Use):
    name = await begin(use, "test -t 0 && read -p 'name? ' n; echo hello $n", pty=True)
    with anyio.fail_after(60):
        while (
            "name?" not in (await use("process", action="poll", session_id=name))["output_preview"]
        ):
            pass
    await use("process", action="submit", session_id=name, data="ann")
    waited = await use("process", action="wait", session_id=name)
    assert waited["output"].endswith("hello ann\n")


async def test_input_needs_approval(use: Use):
    requests: list[ApprovalRequest] = []

    async def no(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(allowed=False, why="Not that.")

    name = await begin(use, "sh")
    with pytest.raises(ToolError, match=r"Not that\."):
        await use("process", action="submit", session_id=name, data="rm -rf /", ask_=no)
    assert [(one.tool, one.action, one.shell) for one in requests] == [
        ("process", "rm -rf /", True)
    ]


async def test_unfinished_line_is_judged_as_a_whole(use: Use, workspace: Path):
    requests: list[ApprovalRequest] = []

    async def careful(request: ApprovalRequest) -> Decision:
        requests.append(request)
        return Decision(allowed="-rf /h" not in request.action.replace("\\\n", ""), why="Not that.")

    name = await begin(use, "cat > got")
    for part in ("ec", "ho one\nr", "m -", "rf "):
        await use("process", action="write", session_id=name, data=part, ask_=careful)
    with pytest.raises(ToolError, match=r"Not that\."):
        await use("process", action="submit", session_id=name, data="/h", ask_=careful)
    await use("process", action="submit", session_id=name, data="x", ask_=careful)
    assert [one.action for one in requests] == [
        "ec", "echo one\nr", "rm -", "rm -rf ", "rm -rf /h", "rm -rf x",
    ]  # fmt: skip
    assert all(name in one.target and "cat > got" in one.target for one in requests)
    for part in ("rm -rf \\\n", "/h\n"):
        with suppress(ToolError):
            await use("process", action="write", session_id=name, data=part, ask_=careful)
    assert requests[-1].action == "rm -rf \\\n/h"
    await use("process", action="close", session_id=name)
    await use("process", action="wait", session_id=name)
    assert (workspace / "got").read_text() == "echo one\nrm -rf x\nrm -rf \\\n"


async def test_interrupt_needs_no_approval_and_clears_the_line(use: Use):
    questions: list[str] = []

    async def note(request: ApprovalRequest) -> Decision:
        questions.append(request.action)
        return Decision(allowed=True)

    name = await begin(use, "cat", pty=True)
    for part in ("rm ", "\x03", "x"):
        with suppress(ToolError):
            await use("process", action="write", session_id=name, data=part, ask_=note)
    assert questions[0] == "rm "
    assert "rm x" not in questions
    assert "\x03" not in questions


async def test_log_returns_lines(use: Use, secret: str):
    name = await begin(use, f"seq 300; echo {secret}")
    await use("process", action="wait", session_id=name)
    last = await use("process", action="log", session_id=name)
    assert (last["total_lines"], last["showing"]) == (301, "lines 102 to 301")
    assert last["output"].splitlines()[-1] == "[redacted]"
    some = await use("process", action="log", session_id=name, offset=10, limit=2)
    assert (some["output"], some["showing"]) == ("10\n11", "lines 10 to 11")


async def test_notification_is_refused_where_unsupported(use: Use, scope: Scope):
    silent = structs.replace(scope, later=False)
    for promise in ({"notify_on_complete": True}, {"watch_patterns": ["x"]}):
        begun = await use("terminal", command="true", background=True, scope_=silent, **promise)
        assert begun["notify_on_complete"] is False
        assert "poll" in begun["notify_unsupported"]
        assert "watch_patterns" not in begun


async def test_notify_wins_over_watch(use: Use):
    begun = await use(
        "terminal",
        command="true",
        background=True,
        notify_on_complete=True,
        watch_patterns=["x"],
    )
    assert begun["notify_on_complete"] is True
    assert "watch_patterns" not in begun
    watched = await use("terminal", command="true", background=True, watch_patterns=["x"])
    assert (watched["notify_on_complete"], watched["watch_patterns"]) == (False, ["x"])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"action": "poll"}, "`session_id` is missing"),
        ({"action": "poll", "session_id": "proc_0"}, "has no process 'proc_0'"),
        ({"action": "dance"}, "`action` must be one of"),
        ({"action": "wait", "session_id": "x", "timeout": 601}, "from 0 to 600"),
    ],
)
async def test_invalid_arguments_are_refused(use: Use, args: dict[str, Any], message: str):
    with pytest.raises(ToolError, match=message):
        await use("process", **args)


async def test_missing_program_exits_with_the_shell(use: Use):
    name = await begin(use, "no-such-program")
    waited = await use("process", action="wait", session_id=name)
    assert waited["exit_code"] == 127
