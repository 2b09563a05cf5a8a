"""Codex turns that are steered, interrupted, or killed."""

import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint

from hermes.schema.events import Outcome, TextDelta, ToolStarted
from hermes.schema.messages import Assistant, Stop, Text, User, text_of
from hermes.testing.fake_openai import Fault, Reply, Rule, Script
from support.cli_process import TEST_TIMEOUT
from support.codex_runtime import codex_pids
from support.codex_scenarios import (
    ENDLESS_COMMAND,
    EventWaiter,
    ask_and_interrupt,
    command_script,
    has_exited,
    results,
    served_codex,
    wait_for_event,
    wait_for_file,
)


async def test_interrupt_keeps_the_partial_answer(tmp_path: Path, program: str) -> None:
    long = Reply(text="half of it " * 50, pace=0.05)
    async with served_codex(Script(default=long), tmp_path, program) as (model, harness):
        await ask_and_interrupt(harness, partial(wait_for_event, harness, TextDelta))
        assert harness.ended is not None
        assert harness.ended.outcome is Outcome.CANCELLED
        model.script.default = Reply(text="well")
        assert await harness.ask("and now?") is Outcome.DONE
        assert harness.service.started == 1
    half = harness.messages[1]
    assert isinstance(half, Assistant)
    assert half.stop is Stop.CANCELLED
    assert half.text.startswith("half")
    assert "half of" in model.requests[-1].body.decode()


async def test_interrupt_ends_the_command(tmp_path: Path, program: str) -> None:
    async with served_codex(command_script(ENDLESS_COMMAND), tmp_path, program) as (_, harness):

        async def begun() -> None:
            """Wait until the command is reported and has written its process id."""
            await wait_for_event(harness, ToolStarted)
            await wait_for_file(tmp_path / "work" / "pid")

        await ask_and_interrupt(harness, begun)
        assert await has_exited(int(await wait_for_file(tmp_path / "work" / "pid")))
        assert harness.service.started == 1
    (result,) = results(harness.messages)
    assert result.failed
    assert "outcome is unknown" in text_of(result)


async def test_steering_message_is_read(tmp_path: Path, program: str) -> None:
    script = Script(
        rules=[
            Rule(contains="stop at ten", steps=[Reply(text="stopped at ten")]),
            Rule(contains="go", steps=[Reply(text="one two three " * 10, pace=0.05)]),
        ]
    )
    word = User("msg_word", (Text("stop at ten"),))
    until, steering = EventWaiter(TextDelta), [word]

    async def meanwhile() -> Sequence[User]:
        await checkpoint()
        return [steering.pop()] if until.seen.is_set() and steering else ()

    async with served_codex(script, tmp_path, program) as (_, harness):
        with anyio.fail_after(TEST_TIMEOUT):
            outcome = await harness.ask("go", meanwhile=meanwhile, listen=until)
    assert outcome is Outcome.DONE, harness.ended
    assert word in harness.messages
    assert text_of(harness.messages[-1]) == "stopped at ten"
    assert harness.messages.count(word) == 1


async def test_unread_steering_messages_are_not_lost(tmp_path: Path, program: str) -> None:
    word = User("msg_word", (Text("one more thing"),))
    steering = [word]

    async def meanwhile() -> Sequence[User]:
        await checkpoint()
        return [steering.pop()] if steering else ()

    fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
    slow = Reply(first_byte=1.0, fault=fault)
    async with served_codex(Script(default=slow), tmp_path, program) as (_, harness):
        with anyio.fail_after(TEST_TIMEOUT):
            assert await harness.ask("go", meanwhile=meanwhile) is Outcome.FAILED
    assert harness.messages.count(word) == 1


async def test_process_is_restarted_after_a_kill_in_mid_turn(tmp_path: Path, program: str) -> None:
    long = Reply(text="half of it " * 50, pace=0.05)
    async with served_codex(Script(default=long), tmp_path, program) as (model, harness):
        until = EventWaiter(TextDelta)

        async def kill() -> None:
            await until.seen.wait()
            for pid in codex_pids(tmp_path):
                os.kill(pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            await harness.ask("go", listen=until)
        assert harness.ended is not None
        assert harness.ended.outcome is Outcome.FAILED
        assert "/codex-runtime auto" in harness.ended.reason
        model.script.default = Reply(text="alive")
        assert await harness.ask("and now?") is Outcome.DONE, harness.ended
        assert harness.service.started == 2
    body = model.requests[-1].body.decode()
    assert '"go"' in body
    assert "half of" in body
    assert text_of(harness.messages[-1]) == "alive"
