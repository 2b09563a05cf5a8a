"""Whole turns with the real codex and the mock model: text, images, commands, patches."""

from pathlib import Path

from hermes.runtimes.codex.threads import ThreadSettings
from hermes.schema.events import (
    Notice,
    Outcome,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Usage, text_of
from hermes.store.blobs import FileBlobs
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from support.codex_runtime import CodexSetup, FakeApprovals, codex_harness
from support.codex_scenarios import (
    PATCH,
    SLOW_COMMAND,
    command_script,
    escalation_script,
    results,
    served_codex,
    tiny_png,
)
from support.turns import FakeTool


async def test_two_turns_share_one_thread(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="Hello from far away.", reasoning="They greet me."))
    async with serve(script) as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            outcome = await harness.ask("hi", system="Be kind.")
            assert outcome is Outcome.DONE, harness.ended
            deltas = [event.text for event in harness.events if isinstance(event, TextDelta)]
            thoughts = [event.text for event in harness.events if isinstance(event, ReasoningDelta)]
            await harness.ask("and again")
            assert harness.service.started == 1
    first = harness.messages[1]
    assert isinstance(first, Assistant)
    assert first.text == "Hello from far away."
    assert (first.model, first.provider, first.usage) == ("mock-model", "mock", Usage(10, 5))
    assert "".join(deltas) == "Hello from far away."
    assert len(deltas) > 1
    assert "".join(thoughts) == "They greet me."
    assert "Be kind." in model.requests[0].body.decode()
    again = model.requests[1].body.decode()
    assert again.count("Hello from far away.") == 1
    assert "hi" in again
    assert harness.ended is not None
    assert harness.ended.usage == Usage(10, 5)


async def test_image_is_sent(tmp_path: Path, program: str) -> None:
    async with serve() as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            media = await FileBlobs(tmp_path / "blobs").put(tiny_png(), "image/png", "dot.png")
            await harness.ask("look", media)
    assert "data:image/png;base64," in model.requests[0].body.decode()


async def test_command_becomes_a_call_with_its_result(tmp_path: Path, program: str) -> None:
    async with served_codex(command_script("echo out; exit 3"), tmp_path, program) as (_, harness):
        outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    (result,) = results(harness.messages)
    assert result.failed
    assert text_of(result) == "[exit 3]\nout\n"
    question = harness.messages[1]
    assert isinstance(question, Assistant)
    (call,) = question.calls
    assert (call.name, call.id) == ("exec_command", result.call)
    assert b"echo out; exit 3" in bytes(call.args)
    assert any(isinstance(event, ToolStarted) for event in harness.events)
    assert text_of(harness.messages[-1]) == "done"


async def test_command_output_is_streamed(tmp_path: Path, program: str) -> None:
    async with served_codex(command_script(SLOW_COMMAND), tmp_path, program) as (_, harness):
        await harness.ask("go")
    shown = "".join(event.text for event in harness.events if isinstance(event, ToolProgress))
    assert "step 3" in shown
    (result,) = results(harness.messages)
    assert text_of(result) == "step 1\nstep 2\nstep 3\n"


async def test_approved_command_runs(tmp_path: Path, program: str) -> None:
    rules = FakeApprovals(allowed=True)
    async with serve(escalation_script("echo yes > made")) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", approvals=rules
        )
        async with codex_harness(setup) as harness:
            outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    (wish,) = rules.wishes
    assert (wish.tool, wish.shell, wish.reason) == ("terminal", True, "I need it")
    assert "echo yes > made" in wish.action
    assert (tmp_path / "work" / "made").read_text() == "yes\n"


async def test_denied_command_does_not_run(tmp_path: Path, program: str) -> None:
    rules = FakeApprovals(allowed=False)
    async with serve(escalation_script("echo yes > made")) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", approvals=rules
        )
        async with codex_harness(setup) as harness:
            outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    assert len(rules.wishes) == 1
    assert not (tmp_path / "work" / "made").exists()
    (result,) = results(harness.messages)
    assert result.failed
    assert "Declined" in text_of(result)


async def test_patch_is_shown_with_its_changes(tmp_path: Path, program: str) -> None:
    async with served_codex(command_script(PATCH), tmp_path, program) as (_, harness):
        outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    assert (tmp_path / "work" / "new.txt").read_text() == "one\n"
    (result,) = results(harness.messages)
    assert "1 change(s)" in text_of(result)
    assert "one" in result.shown
    notices = [event.text for event in harness.events if isinstance(event, Notice)]
    assert "Changes so far: 1 file(s), +1 -0." in notices


async def test_our_tools_are_called(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    reply = Reply(calls=[Call("session_search", {"query": "boats"})])
    script = Script(rules=[Rule(contains="go", steps=[reply, Reply(text="found")])])
    async with serve(script) as model:
        setup = CodexSetup(
            url=model.url, path=tmp_path, program=program, tools={"session_search": tool}
        )
        async with codex_harness(setup) as harness:
            outcome = await harness.ask("go")
    assert outcome is Outcome.DONE, harness.ended
    assert tool.asked == [{"query": "boats"}]
    (result,) = results(harness.messages)
    assert "boats" in text_of(result)
    assert "did {'query': 'boats'}" in model.requests[1].body.decode()


async def test_new_model_applies_from_the_next_turn(tmp_path: Path, program: str) -> None:
    async with serve() as model:
        setup = CodexSetup(url=model.url, path=tmp_path, program=program)
        async with codex_harness(setup) as harness:
            await harness.ask("hello")
            harness.choose(ThreadSettings(model="mock-two", effort="high"))
            assert await harness.ask("hello again") is Outcome.DONE, harness.ended
    assert [request.json["model"] for request in model.requests] == ["mock-model", "mock-two"]
    last = harness.messages[-1]
    assert isinstance(last, Assistant)
    assert last.model == "mock-two"


async def test_plan_is_shown(tmp_path: Path, program: str) -> None:
    steps = [{"step": "look", "status": "completed"}, {"step": "leap", "status": "in_progress"}]
    plan = Reply(calls=[Call("update_plan", {"plan": steps})])
    script = Script(rules=[Rule(contains="go", steps=[plan, Reply(text="done")])])
    async with serve(script) as model:
        settings = ThreadSettings(config={"tools": {"update_plan": {"enabled": True}}})
        setup = CodexSetup(url=model.url, path=tmp_path, program=program, settings=settings)
        async with codex_harness(setup) as harness:
            assert await harness.ask("go") is Outcome.DONE, harness.ended
    notices = [event.text for event in harness.events if isinstance(event, Notice)]
    assert "Plan: [x] look; [>] leap" in notices


async def test_account_usage_is_reported(tmp_path: Path, program: str) -> None:
    limits = {
        "x-codex-primary-used-percent": "93",
        "x-codex-primary-window-minutes": "300",
        "x-codex-secondary-used-percent": "12",
        "x-codex-secondary-window-minutes": "10080",
    }
    script = Script(default=Reply(text="Hello.", headers=limits))
    async with served_codex(script, tmp_path, program) as (_, harness):
        assert await harness.ask("hi") is Outcome.DONE, harness.ended
        assert harness.service.limits.description == "93 % of 5 h, 12 % of 7 d"
    notices = [event.text for event in harness.events if isinstance(event, Notice)]
    assert "Codex: 93 % of the account's limit is used." in notices
