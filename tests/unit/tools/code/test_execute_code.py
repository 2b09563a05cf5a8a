"""A program of the model's runs apart and reaches the agent's tools by name."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

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

pytestmark = pytest.mark.anyio
PARAMETERS = {"read_file": ["path", "offset"], "terminal": ["command", "background"]}


class Bench:
    """The tool, with a turn that has two others; `asked` is what they were asked for."""

    def __init__(self, tmp_path: Path, door: Spawner, **limits: float) -> None:
        self.folder = tmp_path
        self.asked: list[tuple[str, object]] = []
        self.wishes: list[ApprovalRequest] = []
        self.allowed = True
        self.tool = ExecuteCode(
            CodeDeps(
                sandbox=LocalSandbox(door),
                env=lambda scope: {"PATH": "/usr/bin:/bin", "WHO": scope.session},
                places=SessionPaths(tmp_path),
                redact=lambda text: text.replace("s3cret", "***"),
                clock=FakeClock(),
                python=lambda folder: sys.executable,
                parameters=PARAMETERS.get,
                **limits,  # type: ignore[arg-type]
            )
        )

    async def use(self, name: str, args: Raw) -> ToolOutput:
        given = msgspec.json.decode(args)
        self.asked.append((name, given))
        if given.get("path") == "gone":
            raise ToolError("read_file: there is no such file.")
        failed = given.get("command") == "false"
        return ToolOutput.text(msgspec.json.encode({"content": given}).decode(), failed=failed)

    async def ask(self, wish: ApprovalRequest) -> Decision:
        self.wishes.append(wish)
        return Decision(self.allowed, "" if self.allowed else "Not allowed today.")

    async def run(self, code: str) -> dict:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        scope = Scope("p", "s1", "r", str(self.folder))
        ctx = ToolContext(scope, "c", progress, ask=self.ask, use=self.use)
        output = await self.tool.run(Raw(msgspec.json.encode({"code": code})), ctx)
        (part,) = output.parts
        assert isinstance(part, Text)
        answer = msgspec.json.decode(part.text)
        assert output.failed == (answer["status"] != "success")
        return answer


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    with Spawner() as door:
        yield Bench(tmp_path, door)


async def test_printed_text_comes_back(bench: Bench) -> None:
    answer = await bench.run("import os\nprint('hi', os.environ['WHO'], os.getcwd())")
    assert answer["output"] == f"hi s1 {bench.folder}\n"
    assert (answer["status"], answer["exit_code"], answer["tool_calls_made"]) == ("success", 0, 0)
    assert [wish.action for wish in bench.wishes] == [
        "import os\nprint('hi', os.environ['WHO'], os.getcwd())"
    ]
    (wish,) = bench.wishes
    assert (wish.code, wish.reaching, wish.folder) == (True, Isolation.OPEN, str(bench.folder))


async def test_tools_are_functions_and_answer_with_data(bench: Bench) -> None:
    answer = await bench.run(
        "from hermes_tools import read_file, terminal\n"
        "found = [read_file(name)['content']['path'] for name in ('a', 'b')]\n"
        "print(found, terminal(command='ls')['content'])"
    )
    assert answer["output"] == "['a', 'b'] {'command': 'ls'}\n"
    assert answer["tool_calls_made"] == 3
    assert bench.asked[0] == ("read_file", {"path": "a"})


async def test_a_tool_that_fails_can_be_caught(bench: Bench) -> None:
    answer = await bench.run(
        "try:\n    read_file('gone')\nexcept ToolFailed as error:\n    print('no:', error)"
    )
    assert answer["output"] == "no: read_file: there is no such file.\n"


async def test_a_command_that_ends_badly_has_run_and_the_program_judges_it(bench: Bench) -> None:
    answer = await bench.run("print(terminal(command='false')['content'])")
    assert (answer["output"], answer["status"]) == ("{'command': 'false'}\n", "success")


async def test_what_goes_wrong_is_shown_as_python_shows_it(bench: Bench) -> None:
    answer = await bench.run("def f():\n    return 1 / 0\nprint('before')\nf()")
    assert (answer["output"], answer["exit_code"], answer["status"]) == ("before\n", 1, "error")
    assert answer["error"].startswith('Traceback (most recent call last):\n  File "<code>", line 4')
    assert "child" not in answer["error"]


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [("raise SystemExit(3)", 3), ("import sys; sys.exit('why')", 1), ("import os; os._exit(5)", 5),
     ("import os; os.kill(os.getpid(), 9)", 137), ("def", 1), ("exit()", 0)],
)  # fmt: skip
async def test_every_way_to_end(bench: Bench, code: str, exit_code: int) -> None:
    assert (await bench.run(code))["exit_code"] == exit_code


async def test_children_of_the_program_are_heard_too(bench: Bench) -> None:
    answer = await bench.run("import os; os.system('echo from a shell; echo bad >&2')")
    assert (answer["output"], answer["error"]) == ("from a shell\n", "bad")


async def test_secrets_are_masked_and_colours_gone(bench: Bench) -> None:
    answer = await bench.run("print('\\x1b[31ms3cret\\x1b[0m')")
    assert answer["output"] == "***\n"


async def test_much_output_keeps_both_ends(bench: Bench) -> None:
    answer = await bench.run("print('begin'); print('x' * 3_000_000); print('end')")
    assert len(answer["output"]) < 50_100
    assert answer["output"].startswith("begin")
    assert answer["output"].endswith("end\n")
    assert (answer["stdout_truncated"], answer["stdout_chars"]) == (True, 3_000_011)


@pytest.mark.parametrize("length", [19_990, 19_995, 19_999, 99_990, 99_996])
async def test_no_half_of_a_secret_stands_at_a_cut(bench: Bench, length: int) -> None:
    code = f"print('y' * {length}, end='s3cret\\n'); print('x\\n' * 150_000, end='s3cret\\n')"
    answer = await bench.run(code)
    assert "s3" not in answer["output"]
    assert "left out" in answer["output"]


async def test_calls_are_counted_and_bounded(tmp_path: Path) -> None:
    with Spawner() as door:
        bench = Bench(tmp_path, door, calls=2)
        answer = await bench.run("for name in 'abc':\n    read_file(name)\n    print(name)")
    assert answer["output"] == "a\nb\n"
    assert "More than 2 tool calls" in answer["error"]
    assert len(bench.asked) == 2


async def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    with Spawner(grace=0.1) as door:
        answer = await Bench(tmp_path, door, timeout=0.5).run(
            "print('going', flush=True)\nwhile True: pass"
        )
    assert (answer["status"], answer["exit_code"]) == ("timeout", 124)
    assert "stopped after 0.5 s" in answer["error"]


async def test_nothing_runs_that_is_not_allowed(bench: Bench) -> None:
    bench.allowed = False
    with pytest.raises(ToolError, match="Not allowed today"):
        await bench.run("open('made', 'w')")
    assert not (bench.folder / "made").exists()


@pytest.mark.parametrize(
    "call", ["hermes_tools.send_message('x')", "terminal('x', background=True)"]
)
async def test_what_a_program_may_not_call(bench: Bench, call: str) -> None:
    answer = await bench.run(f"import hermes_tools\n{call}")
    assert answer["exit_code"] == 1
    assert bench.asked == []


async def test_lines_that_are_no_calls_are_only_shown(bench: Bench) -> None:
    """The program may find our pipe, but gets nothing there that it would not get by asking."""
    answer = await bench.run(
        "import os\n"
        "for fd in range(3, 12):\n"
        "    try: os.write(fd, b'not json\\n')\n"
        "    except OSError: pass\n"
        "print('done')"
    )
    assert answer["status"] == "success"
    assert "done\n" in answer["output"]


@pytest.mark.parametrize("code", ["", "   ", "x" * 200_001])
async def test_bad_programs_are_refused_before_anything_starts(bench: Bench, code: str) -> None:
    with pytest.raises(ToolError):
        await bench.run(code)
    assert bench.wishes == []
