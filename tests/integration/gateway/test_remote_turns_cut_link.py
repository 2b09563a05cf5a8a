"""Turns on a remote gateway over a link that is cut at random: everything arrives."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.kit.clock import SystemClock
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.plugin import RemoteRuntime
from hermes.runtimes.proxy.remote_turn import RemoteTurnDeps
from hermes.schema.events import Outcome, TextDelta, ToolStarted
from hermes.store.blobs import FileBlobs
from hermes.testing.fake_openai import Reply, Rule, Script
from support.api_server import KEY, ApiHarness, api_harness
from support.faulty_link import BreakKind, FaultyLink, LinkBreak, faulty_link, random_breaks
from support.gateway import wait_until
from support.gateway_pair import (
    GatewayPair,
    answer_tokens,
    answers_in,
    gateway_pair,
    numbered_script,
    question,
    questions_in,
)
from support.turns import SCOPE, EventRecorder, user_message

TURNS = 48
COUNT = 30


def summary(turns: int, link: FaultyLink) -> str:
    return (
        f"{turns} turns, {link.connections} connections, {link.cuts} cuts, "
        f"{link.forwarded:,} bytes; "
        "every answer whole and there once, on both sides"
    )


def steps_asked(remote: ApiHarness, questions: Sequence[str]) -> int:
    """Return how often the model was asked to continue, without summaries."""
    known, steps = set(questions), 0
    for number in range(len(remote.model_server.requests)):
        last = remote.model_request(number)["messages"][-1]
        steps += last["role"] == "tool" or last["content"] in known
    return steps


async def examine(both: GatewayPair, turns: int, count: int) -> None:
    """Ask everything in one chat; answers must be complete and stored once on both sides."""
    local, remote, link = both.local, both.remote, both.link
    expected: list[str] = []
    for number in range(turns):
        look = f"Let me look, {number}.\n\n" if number % 3 == 0 else ""
        expected.append(look + answer_tokens(number, count))
        await local.channel.say(question(number))
        await local.wait_for_posts(*expected)
    await local.wait_until_idle()
    link.plan = LinkBreak
    questions = [question(number) for number in range(turns)]
    here = await local.transcript()
    assert (questions_in(here), answers_in(here)) == (questions, expected)
    there = await both.remote_messages()
    assert (questions_in(there), answers_in(there)) == (questions, expected)
    assert steps_asked(remote, questions) == turns + (turns + 2) // 3
    assert await local.open_rows() == []


async def test_every_token_of_every_turn_arrives_once(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, numbered_script(TURNS, COUNT)) as both:
        both.link.plan = random_breaks(8642, max_bytes=2_500, share=0.9)
        await examine(both, TURNS, COUNT)
        sys.stdout.write(summary(TURNS, both.link))
        assert both.link.cuts >= TURNS


@pytest.mark.soak
@pytest.mark.timeout(3000)
async def test_a_thousand_turns_over_a_bad_link(
    tmp_path: Path, prove: Callable[[str], None]
) -> None:
    turns = 1_000
    async with gateway_pair(tmp_path, numbered_script(turns, 60, pace=0.001)) as both:
        both.link.plan = random_breaks(4711, max_bytes=6_000, share=0.9)
        with anyio.fail_after(1_800):
            await examine(both, turns, 60)
        prove(summary(turns, both.link))
        assert both.link.cuts >= turns


async def test_streamed_text_has_no_gaps_or_repetitions(tmp_path: Path) -> None:
    """The text deltas add up to the answer, and each tool call is reported once."""
    async with (
        api_harness(tmp_path, numbered_script(TURNS, COUNT, pace=0.001)) as remote,
        faulty_link(remote.server.port) as link,
    ):
        parts = RemoteTurnDeps(
            remote=RemoteGateway(url=link.url, key=KEY),
            clock=SystemClock(),
            blobs=FileBlobs(tmp_path / "blobs"),
        )
        runtime = RemoteRuntime(parts)
        link.plan = random_breaks(1789, max_bytes=2_500, share=0.9)
        for number in range(TURNS):
            recorder = EventRecorder()
            plan = RuntimePlan(scope=SCOPE, runtime=runtime, system="", history=())
            with anyio.fail_after(60):
                outcome = await run_turn(plan, [user_message(question(number))], recorder)
            assert outcome is Outcome.DONE, recorder.ended.reason
            deltas = "".join(one.text for one in recorder.events if isinstance(one, TextDelta))
            look = f"Let me look, {number}.\n\n" if number % 3 == 0 else ""
            assert deltas == recorder.texts[-1] == look + answer_tokens(number, COUNT)
            used = [one.call.name for one in recorder.events if isinstance(one, ToolStarted)]
            assert used == (["todo"] if look else [])
        sys.stdout.write(summary(TURNS, link))
        assert link.cuts >= TURNS
        assert len(remote.model_server.requests) == TURNS + TURNS // 3


async def test_cut_after_each_byte_of_the_first_responses(tmp_path: Path) -> None:
    """It does not matter where exactly the start of a run is cut."""
    turns = 36
    async with gateway_pair(tmp_path, numbered_script(turns, 3)) as both:
        await both.local.channel.say(question(0))
        await wait_until(lambda: bool(both.local.channel.texts_in("1")))
        expected = both.local.channel.texts_in("1")
        for number in range(1, turns):
            failpoints = [number * 7, number * 13 + 1, number * 3]
            both.link.plan = lambda failpoints=failpoints: LinkBreak(
                down=failpoints.pop() if failpoints else None, kind=BreakKind.RESET
            )
            await both.local.channel.say(question(number))
            look = f"Let me look, {number}.\n\n" if number % 3 == 0 else ""
            expected.append(look + answer_tokens(number, 3))
            await both.local.wait_for_posts(*expected)
        await both.local.wait_until_idle()
        assert len(both.remote.model_server.requests) == turns + turns // 3
        sys.stdout.write(summary(turns, both.link))


async def test_silently_dead_link_is_reopened(tmp_path: Path) -> None:
    """Keepalives distinguish a long silence from a dead link, which is reopened."""
    script = Script(rules=[Rule("hi", [Reply("one two three four five six", chunk=4)])])
    async with api_harness(tmp_path, script) as remote, faulty_link(remote.server.port) as link:
        breaks = [LinkBreak(), LinkBreak(down=700, kind=BreakKind.SILENT)]
        link.plan = lambda: breaks.pop(0) if breaks else LinkBreak()
        parts = RemoteTurnDeps(
            remote=RemoteGateway(url=link.url, key=KEY, silence_timeout=0.3),
            clock=SystemClock(),
            blobs=FileBlobs(tmp_path / "blobs"),
        )
        recorder = EventRecorder()
        plan = RuntimePlan(scope=SCOPE, runtime=RemoteRuntime(parts), system="", history=())
        with anyio.fail_after(60):
            await run_turn(plan, [user_message("hi")], recorder)
        assert recorder.texts[-1] == "one two three four five six"
        assert (link.cuts, len(remote.model_server.requests)) == (1, 1)
