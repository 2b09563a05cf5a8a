"""Requests of the real codex during a turn, and what the answers cause."""

import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Struct

from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.turn import Emit
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.events import Outcome
from hermes.schema.messages import Message, Result, text_of
from hermes.schema.scope import Scope
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import FakeOpenAiServer
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import CodexHarness, CodexSetup, FakeApprovals, codex_harness

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


def call_script(call: Call) -> Script:
    return Script(rules=[Rule(contains="go", steps=[Reply(calls=[call]), Reply(text="done")])])


def result_of(messages: list[Message]) -> Result:
    (result,) = [message for message in messages if isinstance(message, Result)]
    return result


class _Item(Struct):
    type: str = ""
    output: str = ""


class _Asked(Struct):
    input: list[_Item]


def output_of(model: FakeOpenAiServer) -> str:
    """Return the output of the call that the model received."""
    items = msgspec.json.decode(model.requests[1].body, type=_Asked).input
    (output,) = [item.output for item in items if item.type == "function_call_output"]
    return output


@pytest.mark.parametrize("allowed", [True, False])
async def test_file_change_needs_approval(tmp_path: Path, program: str, allowed: bool) -> None:
    rules = FakeApprovals(allowed=allowed)
    async with serve(call_script(Call("exec_command", {"cmd": PATCH}))) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", approvals=rules
        )
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    (request,) = rules.wishes
    assert request.tool == "patch"
    assert request.action == f"add {tmp_path}/work/new.txt"
    assert "one" in request.detail
    assert (tmp_path / "work" / "new.txt").exists() is allowed
    assert result_of(harness.messages).failed is not allowed


@pytest.mark.parametrize("allowed", [True, False])
async def test_mcp_tool_needs_approval(tmp_path: Path, program: str, allowed: bool) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    config = {"mcp_servers": {"s": {"command": sys.executable, "args": [str(server)]}}}
    rules = FakeApprovals(allowed=allowed)
    async with serve(call_script(Call("greet", {"who": "you"}, namespace="mcp__s"))) as model:
        setup = CodexSetup(
            url=model.url,
            path=tmp_path,
            program=program,
            settings=ThreadSettings(config=config),
            approvals=rules,
        )
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    (request,) = rules.wishes
    assert request.tool == "mcp.s"
    assert '{"who":"you"}' in request.action
    result = result_of(harness.messages)
    assert result.failed is not allowed
    assert (text_of(result) == "hello you") is allowed


@pytest.mark.parametrize("answer", ["B", None])
async def test_question_is_answered(tmp_path: Path, program: str, answer: str | None) -> None:
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    question = {"id": "q1", "header": "H", "question": "Which?", "options": options}
    rules = FakeApprovals(allowed=False, answer=answer)
    async with serve(call_script(Call("request_user_input", {"questions": [question]}))) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, config=EXPERIMENTS, approvals=rules
        )
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    assert rules.questions == [("Which?", ["A", "B"])]
    assert ('["B"]' in output_of(model)) is (answer == "B")


@pytest.mark.parametrize("allowed", [True, False])
async def test_permissions_need_approval(tmp_path: Path, program: str, allowed: bool) -> None:
    wanted = {"reason": "I need the net", "permissions": {"network": {"enabled": True}}}
    rules = FakeApprovals(allowed=allowed)
    async with serve(call_script(Call("request_permissions", wanted))) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, config=EXPERIMENTS, approvals=rules
        )
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    (request,) = rules.wishes
    assert request.reason == "I need the net"
    assert ('"enabled":true' in output_of(model)) is allowed


class SlowApprovals(FakeApprovals):
    """Answers after a delay; `asked` is set when a request waits."""

    def __init__(self, seconds: float) -> None:
        super().__init__(allowed=True)
        self._seconds = seconds
        self.asked = anyio.Event()

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.asked.set()
        await SystemClock().sleep(self._seconds)
        return await super().decide(scope, request, emit)


ESCALATED = Call("exec_command", {"cmd": "echo hi", "sandbox_permissions": "require_escalated"})


async def test_waiting_for_an_answer_does_not_time_out(tmp_path: Path, program: str) -> None:
    async with serve(call_script(ESCALATED)) as model:
        setup = CodexSetup(
            url=model.url,
            path=tmp_path,
            program=program,
            sandbox="read-only",
            approvals=SlowApprovals(5.0),
            timeouts=CodexTimeouts(deadline=4.5),
        )
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    assert text_of(result_of(harness.messages)) == "hi\n"


async def test_interrupt_withdraws_the_question(tmp_path: Path, program: str) -> None:
    rules = SlowApprovals(600)
    async with serve(call_script(ESCALATED)) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", approvals=rules
        )
        async with codex_harness(setup) as harness:
            with anyio.fail_after(TEST_TIMEOUT):
                async with anyio.create_task_group() as group:
                    group.start_soon(harness.ask, "go")
                    await rules.asked.wait()
                    group.cancel_scope.cancel()
            model.script.rules.clear()
            assert await harness.ask("and now?") is Outcome.DONE, harness.ended
            assert harness.service.started == 1
    assert rules.wishes == []
    assert result_of(harness.messages).failed


async def test_sessions_share_one_process(tmp_path: Path, program: str) -> None:
    async with serve(call_script(Call("exec_command", {"cmd": "sleep 0.2; echo hi"}))) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            others = [
                CodexHarness(harness.runtime, harness.service, setup, harness.door)
                for _ in range(4)
            ]
            async with anyio.create_task_group() as group:
                for number, other in enumerate(others):
                    other.session = f"ses_{number}"
                    group.start_soon(other.ask, "go")
            assert harness.service.started == 1
    for other in others:
        assert other.ended is not None
        assert other.ended.outcome is Outcome.DONE, other.ended
        assert text_of(result_of(other.messages)) == "hi\n"
