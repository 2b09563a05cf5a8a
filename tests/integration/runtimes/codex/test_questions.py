"""What the real codex asks in the middle of a turn, and what becomes of the answers."""

import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Struct

from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.events import Emit
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, text_of
from hermes.schema.scope import Scope
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import FakeOpenAiServer
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexHarness, CodexSetup, FakeApprovals, codex_harness

pytestmark = pytest.mark.anyio

PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: new.txt
+one
*** End Patch
EOF"""
EXPERIMENTS = "default_mode_request_user_input = true\nrequest_permissions_tool = true\n"
SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    method, number = asked.get("method"), asked.get("id")
    if number is None:
        continue
    result = {}
    if method == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"who": {"type": "string"}}}
        result = {"tools": [{"name": "greet", "description": "greets", "inputSchema": schema}]}
    elif method == "tools/call":
        text = "hello " + asked["params"]["arguments"]["who"]
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}), flush=True)
"""


def calls(call: Call) -> Script:
    return Script(rules=[Rule(contains="go", steps=[Reply(calls=[call]), Reply(text="done")])])


def result_of(said: list[Message]) -> Result:
    (result,) = [message for message in said if isinstance(message, Result)]
    return result


class _Item(Struct):
    type: str = ""
    output: str = ""


class _Asked(Struct):
    input: list[_Item]


def output_of(model: FakeOpenAiServer) -> str:
    """What the model was told that its call came to."""
    items = msgspec.json.decode(model.requests[1].body, type=_Asked).input
    (output,) = [item.output for item in items if item.type == "function_call_output"]
    return output


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_change_of_files(tmp_path: Path, program: str, allowed: bool) -> None:
    rules = FakeApprovals(allowed=allowed)
    async with serve(calls(Call("exec_command", {"cmd": PATCH}))) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", counsel=rules
        )
        async with codex_harness(bench) as house:
            assert await house.ask("go") is Outcome.DONE, house.ended
    (wish,) = rules.wishes
    assert wish.tool == "patch"
    assert wish.action == f"add {tmp_path}/work/new.txt"
    assert "one" in wish.detail
    assert (tmp_path / "work" / "new.txt").exists() is allowed
    assert result_of(house.said).failed is not allowed


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_tool_of_a_server(tmp_path: Path, program: str, allowed: bool) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    given = {"mcp_servers": {"s": {"command": sys.executable, "args": [str(server)]}}}
    rules = FakeApprovals(allowed=allowed)
    async with serve(calls(Call("greet", {"who": "you"}, namespace="mcp__s"))) as model:
        bench = CodexSetup(
            url=model.url,
            path=tmp_path,
            program=program,
            settings=ThreadSettings(config=given),
            counsel=rules,
        )
        async with codex_harness(bench) as house:
            assert await house.ask("go") is Outcome.DONE, house.ended
    (wish,) = rules.wishes
    assert wish.tool == "mcp.s"
    assert '{"who":"you"}' in wish.action
    result = result_of(house.said)
    assert result.failed is not allowed
    assert (text_of(result) == "hello you") is allowed


@pytest.mark.parametrize("words", ["B", None])
async def test_a_question_to_a_person(tmp_path: Path, program: str, words: str | None) -> None:
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    question = {"id": "q1", "header": "H", "question": "Which?", "options": options}
    rules = FakeApprovals(allowed=False, words=words)
    async with serve(calls(Call("request_user_input", {"questions": [question]}))) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, config=EXPERIMENTS, counsel=rules
        )
        async with codex_harness(bench) as house:
            assert await house.ask("go") is Outcome.DONE, house.ended
    assert rules.questions == [("Which?", ["A", "B"])]
    assert ('["B"]' in output_of(model)) is (words == "B")


@pytest.mark.parametrize("allowed", [True, False])
async def test_permissions(tmp_path: Path, program: str, allowed: bool) -> None:
    wanted = {"reason": "I need the net", "permissions": {"network": {"enabled": True}}}
    rules = FakeApprovals(allowed=allowed)
    async with serve(calls(Call("request_permissions", wanted))) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, config=EXPERIMENTS, counsel=rules
        )
        async with codex_harness(bench) as house:
            assert await house.ask("go") is Outcome.DONE, house.ended
    (wish,) = rules.wishes
    assert wish.reason == "I need the net"
    assert ('"enabled":true' in output_of(model)) is allowed


class Thinking(FakeApprovals):
    """Takes its time; `asked` is set when somebody waits for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(allowed=True)
        self._seconds = seconds
        self.asked = anyio.Event()

    async def rule(self, scope: Scope, wish: ApprovalRequest, tell: Emit) -> Decision:
        self.asked.set()
        await SystemClock().sleep(self._seconds)
        return await super().rule(scope, wish, tell)


ESCALATED = Call("exec_command", {"cmd": "echo hi", "sandbox_permissions": "require_escalated"})


async def test_who_is_asked_may_think(tmp_path: Path, program: str) -> None:
    async with serve(calls(ESCALATED)) as model:
        bench = CodexSetup(
            url=model.url,
            path=tmp_path,
            program=program,
            sandbox="read-only",
            counsel=Thinking(5.0),
            patience=CodexTimeouts(deadline=4.5),
        )
        async with codex_harness(bench) as house:
            assert await house.ask("go") is Outcome.DONE, house.ended
    assert text_of(result_of(house.said)) == "hi\n"


async def test_who_is_asked_is_asked_no_more_after_an_interrupt(
    tmp_path: Path, program: str
) -> None:
    rules = Thinking(600)
    async with serve(calls(ESCALATED)) as model:
        bench = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", counsel=rules
        )
        async with codex_harness(bench) as house:
            with anyio.fail_after(TEST_TIMEOUT):
                async with anyio.create_task_group() as group:
                    group.start_soon(house.ask, "go")
                    await rules.asked.wait()
                    group.cancel_scope.cancel()
            model.script.rules.clear()
            assert await house.ask("and now?") is Outcome.DONE, house.ended
            assert house.service.started == 1
    assert rules.wishes == []
    assert result_of(house.said).failed


async def test_many_sessions_share_one_process(tmp_path: Path, program: str) -> None:
    async with serve(calls(Call("exec_command", {"cmd": "sleep 0.2; echo hi"}))) as model:
        bench = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(bench) as house:
            others = [
                CodexHarness(house.runtime, house.service, bench, house.door) for _ in range(4)
            ]
            async with anyio.create_task_group() as group:
                for number, other in enumerate(others):
                    other.session = f"ses_{number}"
                    group.start_soon(other.ask, "go")
            assert house.service.started == 1
    for other in others:
        assert other.ended is not None
        assert other.ended.outcome is Outcome.DONE, other.ended
        assert text_of(result_of(other.said)) == "hi\n"
