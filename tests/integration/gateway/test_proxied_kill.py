"""A gateway killed while another runs its turns: nothing is lost, no answer asked for twice."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from hermes.gateway.delivery import RECOVERED_MARK
from hermes.testing.channel import check_posts
from hermes.testing.fake_openai import Reply, Rule, Script
from support.api_server import KEY
from support.cli_process import TEST_TIMEOUT, FakeModelProcess, fake_model_process
from support.restarted_gateway import RestartedGateway, restarted_gateway

pytestmark = pytest.mark.anyio

FAR = Path(__file__).parents[1] / "api" / "runs_process.py"
CHATS = ("a", "b")
MID_ANSWER = "in mid-answer"
UNANSWERED = ["runner.accepted", MID_ANSWER]
ANSWERED = ["recorder.before_end", "delivery.before_settle"]
"""What a turn of our own has in common with one that another runs is killed elsewhere."""
RULES = [Rule(f"question {chat}", [Reply(f"answer {chat}", chunk=3, pace=0.1)]) for chat in CHATS]


@contextmanager
def far_gateway(home: Path, model: FakeModelProcess) -> Iterator[str]:
    """The address of a gateway of ours, in a process of its own."""
    home.mkdir()
    command = [sys.executable, str(FAR), str(home), model.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def asked(model: FakeModelProcess) -> dict[str, int]:
    return {chat: len(model.requests(f"question {chat}")) for chat in CHATS}


async def is_killed(chat: RestartedGateway, model: FakeModelProcess, place: str) -> None:
    if place != MID_ANSWER:
        await chat.crash_at(place)
        return
    async with chat.life():
        with anyio.fail_after(TEST_TIMEOUT):
            while not any(asked(model).values()):  # noqa: ASYNC110 - another process is asked
                await anyio.sleep(0.02)


async def is_answered(chat: RestartedGateway) -> None:
    async with chat.life():
        for one in CHATS:
            await chat.sees(f"answer {one}", one)
    expected = {one: [f"answer {one}"] for one in CHATS}
    seen = {one: [post.text for post in chat.posts(f"answer {one}", one)] for one in CHATS}
    check_posts(expected, seen.__getitem__, RECOVERED_MARK)


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
async def test_kill_9_anywhere(tmp_path: Path, place: str) -> None:
    """Behind it is a plain server: what it was asked and did not answer, it is asked again."""
    with fake_model_process(tmp_path / "far", Script(rules=RULES)) as far:
        async with restarted_gateway(
            tmp_path, GATEWAY_PROXY_URL=far.url.removesuffix("/v1")
        ) as chat:
            for one in CHATS:
                chat.say(f"question {one}", chat=one)
            await is_killed(chat, far, place)
            before = asked(far)
            await is_answered(chat)
        bodies = {chat: far.requests(f"question {chat}") for chat in CHATS}
    # Both chats are at work at once: the one that was not at the place may be anywhere before it.
    assert max(before.values()) <= 1
    assert all(len(same) <= 2 for same in bodies.values())
    assert all(body == same[0] for same in bodies.values() for body in same)
    if place in ANSWERED:
        assert min(len(same) for same in bodies.values()) == 1


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
async def test_kill_9_anywhere_runs_no_turn_of_a_gateway_of_ours_twice(
    tmp_path: Path, place: str
) -> None:
    """The run is found again by its name; what it said meanwhile is in its journal."""
    with (
        fake_model_process(tmp_path / "model", Script(rules=RULES)) as model,
        far_gateway(tmp_path / "far", model) as url,
    ):
        async with restarted_gateway(
            tmp_path, GATEWAY_PROXY_URL=url, GATEWAY_PROXY_KEY=KEY
        ) as chat:
            for one in CHATS:
                chat.say(f"question {one}", chat=one)
            await is_killed(chat, model, place)
            await is_answered(chat)
        assert asked(model) == dict.fromkeys(CHATS, 1)
