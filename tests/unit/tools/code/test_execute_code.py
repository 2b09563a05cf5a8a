"""A program runs in the sandbox and calls the agent's tools by name."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.code.tool import CodeDeps, ExecuteCode
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance

pytestmark = pytest.mark.slow
PARAMETERS = {"read_file": ["path", "offset"], "terminal": ["command", "background"]}


class CodeHarness:
    """The tool in a turn with two other tools; `asked` records their calls."""

    def __init__(self, tmp_path: Path, spawner: Spawner, **limits: float) -> None:
        self.folder = tmp_path
        self.asked: list[tuple[str, object]] = []
        self.requests: list[ApprovalRequest] = []
        self.allowed = True
        self.tool = ExecuteCode(
            CodeDeps(
                sandbox=LocalSandbox(spawner),
                env=lambda scope: {"PATH": "/usr/bin:/bin", "WHO": scope.session},
                paths=SessionPaths(tmp_path),
                redact=lambda text: text.replace("s3cret", "***"),
                clock=FakeClock(),
                python=lambda folder: sys.executable,
                parameters=PARAMETERS.get,
                provenance=FileProvenance(SystemClock()),
                **limits,  # type: ignore[arg-type]
            )
        )

    async def use(self, name: str, args: Raw) -> ToolOutput:
        arguments = msgspec.json.decode(args)
        self.asked.append((name, arguments))
        if arguments.get("path") == "gone":
            raise ToolError("read_file: there is no such file.")
        failed = arguments.get("command") == "false"
        return ToolOutput.text(msgspec.json.encode({"content": arguments}).decode(), failed=failed)

    async def ask(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        return Decision(self.allowed, "" if self.allowed else "Not allowed today.")

    async def run(self, code: str) -> dict:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        scope = Scope("p", "s1", "r", str(self.folder))
        ctx = ToolContext(scope, "c", progress, request_approval=self.ask, call_tool=self.use)
        output = await self.tool.run(Raw(msgspec.json.encode({"code": code})), ctx)
        (part,) = output.parts
        assert isinstance(part, Text)
        answer = msgspec.json.decode(part.text)
        assert output.failed == (answer["status"] != "success")
        return answer


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncGenerator[CodeHarness]:
    with Spawner() as spawner:
        yield CodeHarness(tmp_path, spawner)


async def test_printed_text_is_returned(harness: CodeHarness) -> None:
    answer = await harness.run("import os\nprint('hi', os.environ['WHO'], os.getcwd())")
    assert answer["output"] == f"hi s1 {harness.folder}\n"
    assert (answer["status"], answer["exit_code"], answer["tool_calls_made"]) == ("success", 0, 0)
    assert [request.action for request in harness.requests] == [
        "import os\nprint('hi', os.environ['WHO'], os.getcwd())"
    ]
    (request,) = harness.requests
    assert (request.code, request.reaching, request.folder) == (
        True,
        Isolation.OPEN,
        str(harness.folder),
    )


async def test_tools_are_functions_that_return_data(harness: CodeHarness) -> None:
    answer = await harness.run(
        "from hermes_tools import read_file, terminal\n"
        "found = [read_file(name)['content']['path'] for name in ('a', 'b')]\n"
        "print(found, terminal(command='ls')['content'])"
    )
    assert answer["output"] == "['a', 'b'] {'command': 'ls'}\n"
    assert answer["tool_calls_made"] == 3
    assert harness.asked[0] == ("read_file", {"path": "a"})


async def test_tool_failure_can_be_caught(harness: CodeHarness) -> None:
    answer = await harness.run(
        "try:\n    read_file('gone')\nexcept ToolFailed as error:\n    print('no:', error)"
    )
    assert answer["output"] == "no: read_file: there is no such file.\n"


async def test_nonzero_exit_code_is_returned_to_the_program(harness: CodeHarness) -> None:
    answer = await harness.run("print(terminal(command='false')['content'])")
    assert (answer["output"], answer["status"]) == ("{'command': 'false'}\n", "success")


async def test_errors_are_shown_like_python_does(harness: CodeHarness) -> None:
    answer = await harness.run("def f():\n    return 1 / 0\nprint('before')\nf()")
    assert (answer["output"], answer["exit_code"], answer["status"]) == ("before\n", 1, "error")
    assert answer["error"].startswith('Traceback (most recent call last):\n  File "<code>", line 4')
    assert "child" not in answer["error"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("raise SystemExit(3)", 3), ("import sys; sys.exit('why')", 1), ("import os; os._exit(5)", 5),
     ("import os; os.kill(os.getpid(), 9)", 137), ("def", 1), ("exit()", 0)],
)  # fmt: skip
async def test_exit_codes(harness: CodeHarness, code: str, exit_code: int) -> None:
    assert (await harness.run(code))["exit_code"] == exit_code


async def test_output_of_child_processes_is_captured(harness: CodeHarness) -> None:
    answer = await harness.run("import os; os.system('echo from a shell; echo bad >&2')")
    assert (answer["output"], answer["error"]) == ("from a shell\n", "bad")


async def test_secrets_and_escapes_are_removed(harness: CodeHarness) -> None:
    answer = await harness.run("print('\\x1b[31ms3cret\\x1b[0m')")
    assert answer["output"] == "***\n"


async def test_long_output_keeps_both_ends(harness: CodeHarness) -> None:
    answer = await harness.run("print('begin'); print('x' * 3_000_000); print('end')")
    assert len(answer["output"]) < 50_100
    assert answer["output"].startswith("begin")
    assert answer["output"].endswith("end\n")
    assert (answer["stdout_truncated"], answer["stdout_chars"]) == (True, 3_000_011)


@pytest.mark.parametrize("length", [19_990, 19_995, 19_999, 99_990, 99_996])
async def test_cut_shows_no_part_of_a_secret(harness: CodeHarness, length: int) -> None:
    code = f"print('y' * {length}, end='s3cret\\n'); print('x\\n' * 150_000, end='s3cret\\n')"
    answer = await harness.run(code)
    assert "s3" not in answer["output"]
    assert "left out" in answer["output"]


async def test_calls_are_counted_and_limited(tmp_path: Path) -> None:
    with Spawner() as spawner:
        harness = CodeHarness(tmp_path, spawner, calls=2)
        answer = await harness.run("for name in 'abc':\n    read_file(name)\n    print(name)")
    assert answer["output"] == "a\nb\n"
    assert "More than 2 tool calls" in answer["error"]
    assert len(harness.asked) == 2


async def test_program_is_stopped_at_the_timeout(tmp_path: Path) -> None:
    with Spawner(grace=0.1) as spawner:
        answer = await CodeHarness(tmp_path, spawner, timeout=0.5).run(
            "print('going', flush=True)\nwhile True: pass"
        )
    assert (answer["status"], answer["exit_code"]) == ("timeout", 124)
    assert "stopped after 0.5 s" in answer["error"]


async def test_denied_program_does_not_run(harness: CodeHarness) -> None:
    harness.allowed = False
    with pytest.raises(ToolError, match="Not allowed today"):
        await harness.run("open('made', 'w')")
    assert not (harness.folder / "made").exists()


@pytest.mark.parametrize(
    "call", ["hermes_tools.send_message('x')", "terminal('x', background=True)"]
)
async def test_forbidden_calls_are_refused(harness: CodeHarness, call: str) -> None:
    answer = await harness.run(f"import hermes_tools\n{call}")
    assert answer["exit_code"] == 1
    assert harness.asked == []


async def test_writes_to_the_pipe_are_only_shown(harness: CodeHarness) -> None:
    """A program that finds our pipe gains nothing from it."""
    answer = await harness.run(
        "import os\n"
        "for fd in range(3, 12):\n"
        "    try: os.write(fd, b'not json\\n')\n"
        "    except OSError: pass\n"
        "print('done')"
    )
    assert answer["status"] == "success"
    assert "done\n" in answer["output"]


@pytest.mark.parametrize("code", ["", "   ", "x" * 200_001])
async def test_invalid_program_is_refused_before_it_starts(harness: CodeHarness, code: str) -> None:
    with pytest.raises(ToolError):
        await harness.run(code)
    assert harness.requests == []
