"""Whole turns with the real codex against the mock model."""

import os
import shutil
import signal
import struct
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from codexes import Bench, CodexHouse, Rules, codex_house, codex_pids
from hermes.kit.clock import SystemClock
from hermes.runtimes.codex.service import Patience
from hermes.runtimes.codex.threads import MOST, Settings
from hermes.schema.events import (
    Event,
    Notice,
    Outcome,
    ReasoningDelta,
    Said,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, Usage, User, text_of
from hermes.store.blobs import FileBlobs
from hermes.testing.mock_openai import Call, Fault, Reply, Rule, Script, serve
from hermes.testing.mock_openai.server import MockServer
from workbench import FakeTool

pytestmark = pytest.mark.anyio

PATCH = """apply_patch <<'EOF'
*** Begin Patch
*** Add File: new.txt
+one
*** End Patch
EOF"""
ENDLESS = "echo $$ > pid; sleep 300"
SLOW = "for n in 1 2 3; do sleep 0.2; echo step $n; done"


def picture() -> bytes:
    """One black point."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack("!I", len(data)) + body + struct.pack("!I", zlib.crc32(body))

    head = struct.pack("!IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0\0\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def runs(command: str, *then: Reply, **more: object) -> Script:
    """The model has this command run, and then says the rest."""
    call = Call("exec_command", {"cmd": command, "yield_time_ms": 30_000, **more})
    steps = [Reply(calls=[call]), *(then or [Reply(text="done")])]
    return Script(rules=[Rule(contains="go", steps=steps)])


def escalated(command: str) -> Script:
    return runs(command, sandbox_permissions="require_escalated", justification="I need it")


def results(said: Sequence[Message]) -> list[Result]:
    return [message for message in said if isinstance(message, Result)]


class Until:
    """Hears events until one is there for which it was told to wait."""

    def __init__(self, *kinds: type[Event]) -> None:
        self._kinds = kinds
        self.seen = anyio.Event()

    async def __call__(self, event: Event, /) -> None:
        if isinstance(event, self._kinds):
            self.seen.set()


async def interrupted(house: CodexHouse, until: Callable[[], Awaitable[object]]) -> None:
    """Ask, and interrupt as soon as that has come about."""
    async with anyio.create_task_group() as group:
        group.start_soon(house.ask, "go")
        with anyio.fail_after(30):
            await until()
        group.cancel_scope.cancel()


async def heard(house: CodexHouse, kind: type[Event]) -> None:
    while not any(isinstance(event, kind) for event in house.events):
        await SystemClock().sleep(0.02)


@asynccontextmanager
async def served(
    script: Script, path: Path, program: str
) -> AsyncGenerator[tuple[MockServer, CodexHouse]]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(serve(script))
        bench = Bench(url=model.url, path=path, program=program)
        yield model, await stack.enter_async_context(codex_house(bench))


async def is_gone(pid: int) -> bool:
    with anyio.move_on_after(5):
        while True:
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            await SystemClock().sleep(0.02)
    return False


async def written(path: Path) -> str:
    with anyio.fail_after(20):
        while not path.exists() or not path.read_text().strip():
            await SystemClock().sleep(0.02)
    return path.read_text().strip()


async def test_it_says_hello_twice_in_one_thread(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="Hello from far away.", reasoning="They greet me."))
    async with serve(script) as model:
        bench = Bench(url=model.url, path=tmp_path, program=program)
        async with codex_house(bench) as house:
            outcome = await house.ask("hi", system="Be kind.")
            assert outcome is Outcome.DONE, house.ended
            deltas = [event.text for event in house.events if isinstance(event, TextDelta)]
            thoughts = [event.text for event in house.events if isinstance(event, ReasoningDelta)]
            await house.ask("and again")
            assert house.service.started == 1
    first = house.said[1]
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
    assert house.ended is not None
    assert house.ended.usage == Usage(10, 5)


async def test_a_picture_goes_along(tmp_path: Path, program: str) -> None:
    async with serve() as model:
        bench = Bench(url=model.url, path=tmp_path, program=program)
        async with codex_house(bench) as house:
            media = await FileBlobs(tmp_path / "blobs").put(picture(), "image/png", "dot.png")
            await house.ask("look", media)
    assert "data:image/png;base64," in model.requests[0].body.decode()


async def test_a_command_is_a_call_with_its_result(tmp_path: Path, program: str) -> None:
    async with served(runs("echo out; exit 3"), tmp_path, program) as (_, house):
        outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    (result,) = results(house.said)
    assert result.failed
    assert text_of(result) == "[exit 3]\nout\n"
    asked = house.said[1]
    assert isinstance(asked, Assistant)
    (call,) = asked.calls
    assert (call.name, call.id) == ("exec_command", result.call)
    assert b"echo out; exit 3" in bytes(call.args)
    assert any(isinstance(event, ToolStarted) for event in house.events)
    assert text_of(house.said[-1]) == "done"


async def test_the_output_of_a_command_is_shown_as_it_comes(tmp_path: Path, program: str) -> None:
    async with served(runs(SLOW), tmp_path, program) as (_, house):
        await house.ask("go")
    shown = "".join(event.text for event in house.events if isinstance(event, ToolProgress))
    assert "step 3" in shown
    (result,) = results(house.said)
    assert text_of(result) == "step 1\nstep 2\nstep 3\n"


async def test_leave_is_given(tmp_path: Path, program: str) -> None:
    rules = Rules(allowed=True)
    async with serve(escalated("echo yes > made")) as model:
        bench = Bench(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", counsel=rules
        )
        async with codex_house(bench) as house:
            outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    (wish,) = rules.wishes
    assert (wish.tool, wish.shell, wish.reason) == ("terminal", True, "I need it")
    assert "echo yes > made" in wish.action
    assert (tmp_path / "work" / "made").read_text() == "yes\n"


async def test_leave_is_refused(tmp_path: Path, program: str) -> None:
    rules = Rules(allowed=False)
    async with serve(escalated("echo yes > made")) as model:
        bench = Bench(
            url=model.url, path=tmp_path, program=program, sandbox="read-only", counsel=rules
        )
        async with codex_house(bench) as house:
            outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    assert len(rules.wishes) == 1
    assert not (tmp_path / "work" / "made").exists()
    (result,) = results(house.said)
    assert result.failed
    assert "Declined" in text_of(result)


async def test_a_patch_is_shown_with_its_changes(tmp_path: Path, program: str) -> None:
    async with served(runs(PATCH), tmp_path, program) as (_, house):
        outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    assert (tmp_path / "work" / "new.txt").read_text() == "one\n"
    (result,) = results(house.said)
    assert "1 change(s)" in text_of(result)
    assert "one" in result.shown
    notices = [event.text for event in house.events if isinstance(event, Notice)]
    assert "Changes so far: 1 file(s), +1 -0." in notices


async def test_our_tools_are_called(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    reply = Reply(calls=[Call("session_search", {"query": "boats"})])
    script = Script(rules=[Rule(contains="go", steps=[reply, Reply(text="found")])])
    async with serve(script) as model:
        bench = Bench(url=model.url, path=tmp_path, program=program, tools={"session_search": tool})
        async with codex_house(bench) as house:
            outcome = await house.ask("go")
    assert outcome is Outcome.DONE, house.ended
    assert tool.asked == [{"query": "boats"}]
    (result,) = results(house.said)
    assert "boats" in text_of(result)
    assert "did {'query': 'boats'}" in model.requests[1].body.decode()


async def test_an_interrupt_keeps_half_an_answer(tmp_path: Path, program: str) -> None:
    long = Reply(text="half of it " * 50, pace=0.05)
    async with served(Script(default=long), tmp_path, program) as (model, house):
        await interrupted(house, partial(heard, house, TextDelta))
        assert house.ended is not None
        assert house.ended.outcome is Outcome.CANCELLED
        model.script.default = Reply(text="well")
        assert await house.ask("and now?") is Outcome.DONE
        assert house.service.started == 1
    half = house.said[1]
    assert isinstance(half, Assistant)
    assert half.stop is Stop.CANCELLED
    assert half.text.startswith("half")
    assert "half of" in model.requests[-1].body.decode()


async def test_an_interrupt_ends_the_command(tmp_path: Path, program: str) -> None:
    async with served(runs(ENDLESS), tmp_path, program) as (_, house):
        await interrupted(house, partial(heard, house, ToolStarted))
        pid = int(await written(tmp_path / "work" / "pid"))
        assert await is_gone(pid)
        assert house.service.started == 1
    (result,) = results(house.said)
    assert result.failed
    assert "outcome is unknown" in text_of(result)


async def test_a_word_in_between_is_heard(tmp_path: Path, program: str) -> None:
    script = Script(
        rules=[
            Rule(contains="stop at ten", steps=[Reply(text="stopped at ten")]),
            Rule(contains="go", steps=[Reply(text="one two three " * 10, pace=0.05)]),
        ]
    )
    word = User("msg_word", (Text("stop at ten"),))
    until, given = Until(TextDelta), [word]

    async def meanwhile() -> Sequence[User]:
        await checkpoint()
        return [given.pop()] if until.seen.is_set() and given else ()

    async with served(script, tmp_path, program) as (_, house):
        with anyio.fail_after(30):
            outcome = await house.ask("go", meanwhile=meanwhile, listen=until)
    assert outcome is Outcome.DONE, house.ended
    assert word in house.said
    assert text_of(house.said[-1]) == "stopped at ten"
    assert house.said.count(word) == 1


async def test_a_model_that_fails_is_told_with_what_to_do(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
    async with served(Script(default=Reply(fault=fault)), tmp_path, program) as (model, house):
        outcome = await house.ask("go")
        assert outcome is Outcome.FAILED
        assert house.ended is not None
        assert "/codex-runtime auto" in house.ended.reason
        assert "codex login" not in house.ended.reason
        model.script.default = Reply(text="well again")
        assert await house.ask("again") is Outcome.DONE


async def test_a_login_that_is_refused_says_codex_login(tmp_path: Path, program: str) -> None:
    fault = Fault("status", status=401, body='{"error":{"message":"token expired"}}')
    async with served(Script(default=Reply(fault=fault)), tmp_path, program) as (_, house):
        outcome = await house.ask("go")
        assert outcome is Outcome.FAILED
        assert house.ended is not None
        assert "codex login" in house.ended.reason
        assert house.ended.code == "auth"


async def test_a_thread_goes_on_in_another_process(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        bench = Bench(url=model.url, path=tmp_path, program=program)
        async with codex_house(bench) as house:
            await house.ask("the word is swordfish")
        async with codex_house(bench) as later:
            later.said = list(house.said)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
    asked = model.requests[-1].body.decode()
    assert asked.count("the word is swordfish") == 1
    assert asked.count("I will remember.") == 1


async def test_a_thread_that_is_gone_begins_anew(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="I will remember."))) as model:
        bench = Bench(url=model.url, path=tmp_path, program=program)
        async with codex_house(bench) as house:
            await house.ask("the word is swordfish")
        shutil.rmtree(tmp_path / "codex")
        async with codex_house(bench) as later:
            later.said = list(house.said)
            assert await later.ask("which word?") is Outcome.DONE, later.ended
    asked = model.requests[-1].body.decode()
    assert asked.count("the word is swordfish") == 1
    assert asked.count("I will remember.") == 1


async def test_what_was_said_elsewhere_is_told_to_a_new_thread(
    tmp_path: Path, program: str
) -> None:
    async with served(Script(default=Reply(text="Yes.")), tmp_path, program) as (model, house):
        house.said = [
            User("msg_1", (Text("the word is swordfish"),)),
            Assistant("msg_2", (Text("Understood."),), Stop.END),
        ]
        assert await house.ask("which word?") is Outcome.DONE, house.ended
    asked = model.requests[-1].body.decode()
    assert asked.count("the word is swordfish") == 1
    assert asked.count("Understood.") == 1


async def test_what_was_taken_back_is_not_remembered(tmp_path: Path, program: str) -> None:
    async with served(Script(default=Reply(text="Yes.")), tmp_path, program) as (model, house):
        await house.ask("keep this")
        await house.ask("forget this")
        del house.said[2:]
        assert await house.ask("what now?") is Outcome.DONE, house.ended
        asked = model.requests[-1].body.decode()
        assert asked.count("keep this") == 1
        assert "forget this" not in asked


async def test_our_tools_are_there_in_another_process(tmp_path: Path, program: str) -> None:
    tool = FakeTool("session_search")
    reply = Reply(calls=[Call("session_search", {"query": "boats"})])
    script = Script(rules=[Rule(contains="go", steps=[reply, Reply(text="found")])])
    async with serve(script) as model:
        bench = Bench(url=model.url, path=tmp_path, program=program, tools={"session_search": tool})
        async with codex_house(bench) as house:
            await house.ask("hello")
        async with codex_house(bench) as later:
            later.said = list(house.said)
            assert await later.ask("go") is Outcome.DONE, later.ended
    assert tool.asked == [{"query": "boats"}]


async def test_another_model_counts_from_the_next_turn_on(tmp_path: Path, program: str) -> None:
    async with serve() as model:
        bench = Bench(url=model.url, path=tmp_path, program=program)
        async with codex_house(bench) as house:
            await house.ask("hello")
            house.choose(Settings(model="mock-two", effort="high"))
            assert await house.ask("hello again") is Outcome.DONE, house.ended
    assert [request.json["model"] for request in model.requests] == ["mock-model", "mock-two"]
    last = house.said[-1]
    assert isinstance(last, Assistant)
    assert last.model == "mock-two"


async def test_words_that_codex_did_not_read_are_not_lost(tmp_path: Path, program: str) -> None:
    word = User("msg_word", (Text("one more thing"),))
    given = [word]

    async def meanwhile() -> Sequence[User]:
        await checkpoint()
        return [given.pop()] if given else ()

    fault = Fault("status", status=500, body='{"error":{"message":"the model burns"}}')
    slow = Reply(first_byte=1.0, fault=fault)
    async with served(Script(default=slow), tmp_path, program) as (_, house):
        with anyio.fail_after(30):
            assert await house.ask("go", meanwhile=meanwhile) is Outcome.FAILED
    assert house.said.count(word) == 1


async def test_killed_in_mid_turn_it_is_started_again(tmp_path: Path, program: str) -> None:
    long = Reply(text="half of it " * 50, pace=0.05)
    async with served(Script(default=long), tmp_path, program) as (model, house):
        until = Until(TextDelta)

        async def kill() -> None:
            await until.seen.wait()
            for pid in codex_pids(tmp_path):
                os.kill(pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            await house.ask("go", listen=until)
        assert house.ended is not None
        assert house.ended.outcome is Outcome.FAILED
        assert "/codex-runtime auto" in house.ended.reason
        model.script.default = Reply(text="alive")
        assert await house.ask("and now?") is Outcome.DONE, house.ended
        assert house.service.started == 2
    asked = model.requests[-1].body.decode()
    assert '"go"' in asked
    assert "half of" in asked
    assert text_of(house.said[-1]) == "alive"


async def test_silence_after_a_tool_is_given_up_on(tmp_path: Path, program: str) -> None:
    hangs = Reply(fault=Fault("hang"))
    async with serve(runs("echo hi", hangs)) as model:
        patience = Patience(quiet=1.0)
        bench = Bench(url=model.url, path=tmp_path, program=program, patience=patience)
        async with codex_house(bench) as house:
            with anyio.fail_after(20):
                outcome = await house.ask("go")
            assert outcome is Outcome.FAILED
            assert house.ended is not None
            assert "silent for 1 s after a tool" in house.ended.reason
            model.script.rules.clear()
            assert await house.ask("again") is Outcome.DONE, house.ended
            assert house.service.started == 2


async def test_a_turn_has_a_deadline(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(fault=Fault("hang")))) as model:
        patience = Patience(deadline=1.0)
        bench = Bench(url=model.url, path=tmp_path, program=program, patience=patience)
        async with codex_house(bench) as house:
            with anyio.fail_after(20):
                outcome = await house.ask("go")
    assert outcome is Outcome.FAILED
    assert house.ended is not None
    assert "timed out after 1 s" in house.ended.reason


async def test_it_is_ended_when_nobody_needs_it(tmp_path: Path, program: str) -> None:
    async with serve(Script(default=Reply(text="Yes."))) as model:
        patience = Patience(idle=0.3)
        bench = Bench(url=model.url, path=tmp_path, program=program, patience=patience)
        async with codex_house(bench) as house:
            await house.ask("the word is swordfish")
            with anyio.fail_after(20):
                while codex_pids(tmp_path):
                    await SystemClock().sleep(0.05)
            assert await house.ask("which word?") is Outcome.DONE, house.ended
            assert house.service.started == 2
    assert model.requests[-1].body.decode().count("the word is swordfish") == 1


async def test_threads_are_let_go_of(tmp_path: Path, program: str) -> None:
    async with served(Script(default=Reply(text="Yes.")), tmp_path, program) as (model, house):
        first: list[Message] = []
        for number in range(MOST + 2):
            house.session, house.said = f"ses_{number}", []
            assert await house.ask(f"word {number}") is Outcome.DONE, house.ended
            first = first or list(house.said)
        async with house.service.server() as server:
            assert len(server.threads) == MOST
        house.session, house.said = "ses_0", first
        assert await house.ask("which word?") is Outcome.DONE, house.ended
        assert "word 0" in model.requests[-1].body.decode()


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    bench = Bench(url="http://127.0.0.1:1", path=tmp_path, program=str(tmp_path / "nothing"))
    async with codex_house(bench) as house:
        outcome = await house.ask("go")
    assert outcome is Outcome.FAILED
    assert house.ended is not None
    assert "could not be started" in house.ended.reason
    assert "/codex-runtime auto" in house.ended.reason
    assert not any(
        isinstance(event, Said) and isinstance(event.message, Assistant) for event in house.events
    )
