"""Turns as runs of a real remote gateway: what is sent, what comes back, what fails."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import structs

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.kit.clock import SystemClock
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.plugin import RemoteRuntime
from hermes.runtimes.proxy.remote_turn import RemoteTurnDeps
from hermes.schema.events import Notice, Outcome, TextDelta, ToolStarted
from hermes.schema.messages import Media, Message, Stop, Text, Trust, User, text_of
from hermes.schema.scope import Role
from hermes.store.blobs import FileBlobs
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script, serve
from support.api_server import KEY, ApiHarness, api_harness
from support.faulty_link import BreakKind, FaultyLink, LinkBreak, faulty_link
from support.polling import pause
from support.preloaded_python import preloaded_program
from support.turns import SCOPE, EventRecorder, assistant_message, running_turn, user_message

PROGRAM = Path(__file__).parents[2] / "api" / "runs_process.py"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
HANG = Reply("one two three", chunk=4, fault=Fault("hang", after=2))
SCRIPT = Script(
    rules=[
        Rule("hang", [HANG]),
        Rule("look", [Reply("Let me look.", calls=[Call("todo", {})]), Reply("I looked.")]),
        Rule(
            "slow", [Reply("x" * 25, chunk=1, pace=0.1, calls=[Call("todo", {})]), Reply("Both.")]
        ),
        Rule("long", [Reply("y" * 25, chunk=1, pace=0.1)]),
        Rule("broken", [Reply(fault=Fault("status", status=400, body='{"error": "no"}'))]),
    ],
    default=Reply("Yes."),
)


def turn_deps(folder: Path, url: str, **far: Any) -> RemoteTurnDeps:
    return RemoteTurnDeps(
        remote=RemoteGateway(url=url, key=KEY, **far),
        clock=SystemClock(),
        blobs=FileBlobs(folder / "near"),
    )


def remote_plan(
    parts: RemoteTurnDeps, *history: Message, system: str = "", **more: Any
) -> RuntimePlan:
    runtime = RemoteRuntime(parts)
    return RuntimePlan(scope=SCOPE, runtime=runtime, system=system, history=history, **more)


async def ask(plan: RuntimePlan, *question: User | str) -> EventRecorder:
    recorder = EventRecorder()
    messages = [user_message(one) if isinstance(one, str) else one for one in question]
    with anyio.fail_after(60):
        await run_turn(plan, messages, recorder)
    return recorder


def model_messages(far: ApiHarness, number: int = 0) -> list[Any]:
    messages = far.model_request(number)["messages"]
    return [one["content"] for one in messages if one["role"] != "system"]


@asynccontextmanager
async def both(folder: Path) -> AsyncGenerator[tuple[ApiHarness, FaultyLink]]:
    async with api_harness(folder, SCRIPT) as far, faulty_link(far.server.port) as link:
        yield far, link


async def test_new_remote_session_starts_with_the_local_history(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        past = (user_message("Who are you?"), assistant_message("A friend."))
        recorder = await ask(
            remote_plan(turn_deps(tmp_path, link.url), *past, system="Be kind."), "Sure?"
        )
        assert (recorder.ended.outcome, recorder.texts) == (Outcome.DONE, ["Sure?", "Yes."])
        assert model_messages(far) == ["Who are you?", "A friend.", "Sure?"]
        assert "Be kind." in far.model_request(0)["messages"][0]["content"]
        there = [text_of(one) for one in await far.messages(SCOPE.session)]
        assert there == ["Who are you?", "A friend.", "Sure?", "Yes."]


async def test_remote_tool_events_are_shown(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        recorder = await ask(remote_plan(turn_deps(tmp_path, link.url)), "look!")
    used = [event.call.name for event in recorder.events if isinstance(event, ToolStarted)]
    assert used == ["todo"]
    assert recorder.texts == ["look!", "Let me look.\n\nI looked."]
    assert recorder.ended.usage.output > 0


async def test_images_and_documents_are_sent(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        parts = turn_deps(tmp_path, link.url)
        picture = await parts.blobs.put(PNG, "image/png", "cat.png")
        notes = await parts.blobs.put(b"Buy milk.", "text/plain", "notes.txt")
        tape = await parts.blobs.put(b"\0\1\2", "audio/ogg", "tape.ogg")
        gone = Media("0" * 64, "image/png", "gone.png")
        recorder = await ask(
            remote_plan(parts),
            User("msg_1", (Text("See."), picture, notes, tape, gone), Trust.OWNER),
        )
        (question,) = model_messages(far)
    assert recorder.ended.outcome is Outcome.DONE
    kinds = [one["type"] for one in question]
    assert "image_url" in kinds
    words = "".join(one.get("text", "") for one in question)
    assert "Buy milk." in words
    assert "tape.ogg (audio/ogg), which was not sent" in words
    notices = [event.text for event in recorder.events if isinstance(event, Notice)]
    assert notices == [
        "tape.ogg cannot be sent to the remote gateway.",
        "gone.png cannot be sent to the remote gateway.",
    ]


async def test_local_stop_stops_the_remote_run(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        recorder = EventRecorder()
        parts = turn_deps(tmp_path, link.url)
        async with running_turn(remote_plan(parts), recorder, [user_message("hang")]) as scope:
            with anyio.fail_after(60):
                await recorder.until(lambda event: isinstance(event, TextDelta))
            scope.cancel()
        assert recorder.ended.outcome is Outcome.CANCELLED
        assert any(line.endswith("/stop HTTP/1.1") for line in link.request_lines)
        # Its session is free again, so the next question is answered.
        again = await ask(remote_plan(parts, *recorder.said), "Still there?")
        assert again.texts[-1] == "Yes."
        there = [text_of(one) for one in await far.messages(SCOPE.session)]
        assert there.count("hang") == 1


async def test_remote_run_stops_despite_a_broken_link(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        recorder = EventRecorder()
        parts = turn_deps(tmp_path, link.url)
        async with running_turn(remote_plan(parts), recorder, [user_message("hang")]) as scope:
            with anyio.fail_after(60):
                await recorder.until(lambda event: isinstance(event, TextDelta))
            breaks = [LinkBreak(up=10), LinkBreak(down=10)]
            link.plan = lambda: breaks.pop() if breaks else LinkBreak()
            scope.cancel()
        assert breaks == []
        again = await ask(remote_plan(parts, *recorder.said), "Still there?")
        assert again.texts[-1] == "Yes."


class SteeringOnce:
    """Steering messages that are returned on the first call."""

    def __init__(self, *words: str) -> None:
        self._words = [user_message(word) for word in words]

    async def __call__(self) -> Sequence[User]:
        words, self._words = self._words, []
        return words


@pytest.mark.parametrize("cut", [False, True])
async def test_steering_message_reaches_the_run_once(tmp_path: Path, cut: bool) -> None:
    async with both(tmp_path) as (far, link):
        # The response to the steering request is lost.
        breaks = [LinkBreak(), LinkBreak(), LinkBreak(down=5)]
        link.plan = lambda: breaks.pop(0) if breaks and cut else LinkBreak()
        plan = remote_plan(turn_deps(tmp_path, link.url), steer=SteeringOnce("And the door?"))
        recorder = await ask(plan, "slow: the window?")
        assert recorder.ended.outcome is Outcome.DONE
        assert recorder.texts[:2] == ["slow: the window?", "And the door?"]
        there = [text_of(one) for one in await far.messages(SCOPE.session) if isinstance(one, User)]
        assert there == ["slow: the window?", "And the door?"]
        assert len(far.model_server.requests) == 2


async def test_unanswered_question_is_not_sent_twice(tmp_path: Path) -> None:
    no = Reply(fault=Fault("status", status=400, body='{"error": "no"}'))
    async with api_harness(tmp_path, Script(replies=[no], default=Reply("Yes."))) as far:
        first = user_message("broken, please")
        parts = turn_deps(tmp_path, far.url)
        recorder = await ask(remote_plan(parts), first)
        assert recorder.ended.outcome is Outcome.FAILED
        await ask(remote_plan(parts, first), "Something else.")
        there = [text_of(one) for one in await far.messages(SCOPE.session)]
        assert there == ["broken, please", "Something else.", "Yes."]


async def test_remote_failure_is_reported(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        recorder = await ask(remote_plan(turn_deps(tmp_path, link.url)), "broken")
    assert recorder.ended.outcome is Outcome.FAILED
    assert recorder.ended.reason.startswith("⚠️ Proxy error: ")
    assert "no" in recorder.ended.reason


async def test_run_stopped_remotely_is_a_failure(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        recorder = EventRecorder()
        async with running_turn(
            remote_plan(turn_deps(tmp_path, link.url)), recorder, [user_message("hang")]
        ):
            with anyio.fail_after(60):
                await recorder.until(lambda event: isinstance(event, TextDelta))
                (line,) = [one for one in link.request_lines if "/events" in one]
                run = line.split("/")[3]
                await far.ask("POST", f"/v1/runs/{run}/stop")
    assert recorder.ended.outcome is Outcome.FAILED
    assert "was stopped at the remote gateway" in recorder.ended.reason


async def test_turn_has_a_total_timeout(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        recorder = await ask(remote_plan(turn_deps(tmp_path, link.url, total=2.0)), "hang")
        assert "took longer than 2 s and was stopped" in recorder.ended.reason
        assert any(line.endswith("/stop HTTP/1.1") for line in link.request_lines)


async def test_permanently_broken_link_is_reported(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        recorder = EventRecorder()
        parts = turn_deps(tmp_path, link.url, reconnect_timeout=0.5, grace=0.3)
        async with running_turn(remote_plan(parts), recorder, [user_message("hang")]):
            with anyio.fail_after(60):
                await recorder.until(lambda event: isinstance(event, TextDelta))
                link.plan = lambda: LinkBreak(down=0)
                link.hang_up()
    assert recorder.ended.code == "network"
    assert recorder.ended.reason.startswith("⚠️ Proxy connection error: ")
    partial = recorder.said[-1]
    assert text_of(partial).startswith("one")
    assert "one two three".startswith(text_of(partial))


async def test_run_that_ends_while_the_link_is_down_is_fetched(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        recorder = EventRecorder()
        async with running_turn(
            remote_plan(turn_deps(tmp_path, link.url)), recorder, [user_message("long")]
        ):
            with anyio.fail_after(60):
                await recorder.until(lambda event: isinstance(event, TextDelta))
                link.plan = lambda: LinkBreak(down=0)
                link.hang_up()
                while not any(
                    not isinstance(one, User) for one in await far.messages(SCOPE.session)
                ):
                    await pause()
                link.plan = LinkBreak
        assert (recorder.ended.outcome, recorder.texts[-1]) == (Outcome.DONE, "y" * 25)
        deltas = [event.text for event in recorder.events if isinstance(event, TextDelta)]
        assert "".join(deltas) == "y" * 25
        assert len(far.model_server.requests) == 1


@asynccontextmanager
async def remote_gateway_process(home: Path, model: str) -> AsyncGenerator[int]:
    """Yield the port of a remote gateway in a separate process, which is killed at the end."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    async with preloaded_program([str(PROGRAM), str(home), model], env=env) as process:
        yield int(await anext(process.stdout))


async def test_restarted_remote_gateway_reports_the_interruption(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    script = Script(replies=[HANG], default=Reply("Yes."))
    async with serve(script) as mock, faulty_link(0) as link:
        recorder = EventRecorder()
        with anyio.fail_after(60):
            async with remote_gateway_process(tmp_path / "far", mock.url) as port:
                link.port = port
                parts = turn_deps(tmp_path, link.url)
                turn = running_turn(remote_plan(parts), recorder, [user_message("hang")])
                await turn.__aenter__()
                await recorder.until(lambda event: isinstance(event, TextDelta))
            async with remote_gateway_process(tmp_path / "far", mock.url) as port:
                link.port = port
                await turn.__aexit__(None, None, None)
                again = await ask(remote_plan(parts, *recorder.said), "Still there?")
    assert (recorder.ended.outcome, recorder.ended.code) == (Outcome.FAILED, "interrupted")
    assert "was restarted during this turn" in recorder.ended.reason
    partial = recorder.said[-1]
    assert text_of(partial).startswith("one")
    assert getattr(partial, "stop", None) is Stop.CANCELLED
    assert again.texts[-1] == "Yes."
    assert len(mock.requests) == 2


async def test_run_unknown_to_the_remote_gateway_is_reported(tmp_path: Path) -> None:
    async with serve(SCRIPT) as mock, faulty_link(0) as link:
        recorder = EventRecorder()
        with anyio.fail_after(60):
            (tmp_path / "one").mkdir()
            (tmp_path / "two").mkdir()
            async with remote_gateway_process(tmp_path / "one", mock.url) as port:
                link.port = port
                turn = running_turn(
                    remote_plan(turn_deps(tmp_path, link.url)), recorder, [user_message("hang")]
                )
                await turn.__aenter__()
                await recorder.until(lambda event: isinstance(event, TextDelta))
            async with remote_gateway_process(tmp_path / "two", mock.url) as port:
                link.port = port
                await turn.__aexit__(None, None, None)
    assert "no longer knows this turn" in recorder.ended.reason


async def test_capabilities_are_requested_once(tmp_path: Path) -> None:
    async with both(tmp_path) as (_, link):
        plan = remote_plan(turn_deps(tmp_path, link.url))
        for _ in range(3):
            await ask(plan, "Hello?")
        assert [line for line in link.request_lines if "capabilities" in line] == [
            "GET /v1/capabilities HTTP/1.1"
        ]
        begun = [line for line in link.request_lines if line == "POST /v1/runs HTTP/1.1"]
        assert len(begun) == 3


async def test_plain_server_gets_chat_completions(tmp_path: Path) -> None:
    async with serve(SCRIPT) as mock:
        recorder = await ask(
            remote_plan(turn_deps(tmp_path, mock.url.removesuffix("/v1"))), "Hello?"
        )
    assert recorder.texts == ["Hello?", "Yes."]
    (request,) = [one for one in mock.requests if one.method == "POST"]
    assert msgspec.json.decode(request.body)["model"] == "hermes-agent"


async def test_unreachable_gateway_is_not_treated_as_a_plain_server(tmp_path: Path) -> None:
    """A chat completion has no role: a guest here would be the owner there."""
    async with both(tmp_path) as (far, link):
        breaks = [LinkBreak(down=100, kind=BreakKind.SILENT), LinkBreak(down=100)]
        link.plan = lambda: breaks.pop() if breaks else LinkBreak()
        plan = remote_plan(turn_deps(tmp_path, link.url, silence_timeout=0.3))
        guest = structs.replace(plan, scope=structs.replace(SCOPE, role=Role.GUEST))
        recorder = await ask(guest, "Hello?")
        assert recorder.texts == ["Hello?", "Yes."]
        assert "POST /v1/chat/completions HTTP/1.1" not in link.request_lines
        assert not far.model_request(0).get("tools")


async def test_nothing_is_sent_to_a_gateway_with_unknown_capabilities(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        link.plan = lambda: LinkBreak(down=100)
        recorder = await ask(
            remote_plan(turn_deps(tmp_path, link.url, reconnect_timeout=0.5)), "Hello?"
        )
        assert recorder.ended.outcome is Outcome.FAILED
        assert recorder.ended.reason.startswith("⚠️ Proxy connection error: ")
        assert {line for line in link.request_lines if line} == {"GET /v1/capabilities HTTP/1.1"}
        assert far.model_server.requests == []


async def test_each_role_of_a_shared_chat_has_its_own_remote_session(tmp_path: Path) -> None:
    async with both(tmp_path) as (far, link):
        owner = remote_plan(turn_deps(tmp_path, link.url))
        guest = structs.replace(owner, scope=structs.replace(SCOPE, role=Role.GUEST))
        for number, plan in enumerate((owner, guest, owner, guest)):
            recorder = await ask(plan, f"Hello {number}?")
            assert recorder.ended.outcome is Outcome.DONE
        sessions = [SCOPE.session, f"{SCOPE.session}.guest"]
        transcripts = [await far.messages(name) for name in sessions]
        texts = [[text_of(one) for one in some if isinstance(one, User)] for some in transcripts]
        assert texts == [["Hello 0?", "Hello 2?"], ["Hello 1?", "Hello 3?"]]
