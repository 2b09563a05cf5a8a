"""A gateway killed while a remote one runs its turns: nothing is lost or asked twice."""

import os
import subprocess
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
from support.preloaded_python import PreloadedPython
from support.restarted_gateway import RestartedGateway, restarted_gateway

REMOTE_PROCESS = Path(__file__).parents[1] / "api" / "runs_process.py"
CHATS = ("a", "b")
MID_ANSWER = "in mid-answer"
UNANSWERED = ["runner.accepted", MID_ANSWER]
ANSWERED = ["recorder.before_end", "delivery.before_settle"]
"""Failpoints shared with local turns are tested elsewhere."""
RULES = [Rule(f"question {chat}", [Reply(f"answer {chat}", chunk=3, pace=0.1)]) for chat in CHATS]


@contextmanager
def remote_gateway(home: Path, model: FakeModelProcess) -> Iterator[str]:
    """Yield the URL of a Hermes gateway in its own process."""
    home.mkdir()
    command = [str(REMOTE_PROCESS), str(home), model.url]
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    with PreloadedPython(
        command, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def asked(model: FakeModelProcess) -> dict[str, int]:
    return {chat: len(model.requests(f"question {chat}")) for chat in CHATS}


async def run_until_killed(chat: RestartedGateway, model: FakeModelProcess, failpoint: str) -> None:
    if failpoint != MID_ANSWER:
        await chat.crash_at(failpoint)
        return
    async with chat.run():
        with anyio.fail_after(TEST_TIMEOUT):
            while not any(asked(model).values()):  # noqa: ASYNC110 - polls another process
                await anyio.sleep(0.02)


async def run_until_answered(chat: RestartedGateway) -> None:
    async with chat.run():
        for one in CHATS:
            await chat.wait_for_post(f"answer {one}", one)
    expected = {one: [f"answer {one}"] for one in CHATS}
    seen = {one: [post.text for post in chat.posts(f"answer {one}", one)] for one in CHATS}
    check_posts(expected, seen.__getitem__, RECOVERED_MARK)


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
async def test_kill_at_any_point(tmp_path: Path, place: str) -> None:
    """Against a plain server, an unanswered request is repeated."""
    with fake_model_process(tmp_path / "far", Script(rules=RULES)) as remote:
        async with restarted_gateway(
            tmp_path, GATEWAY_PROXY_URL=remote.url.removesuffix("/v1")
        ) as chat:
            for one in CHATS:
                chat.say(f"question {one}", chat=one)
            await run_until_killed(chat, remote, place)
            before = asked(remote)
            await run_until_answered(chat)
        bodies = {chat: remote.requests(f"question {chat}") for chat in CHATS}
    # Both chats are active, so the other one may be at any earlier point.
    assert max(before.values()) <= 1
    assert all(len(same) <= 2 for same in bodies.values())
    assert all(body == same[0] for same in bodies.values() for body in same)
    if place in ANSWERED:
        assert min(len(same) for same in bodies.values()) == 1


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
async def test_kill_at_any_point_runs_no_remote_turn_twice(tmp_path: Path, place: str) -> None:
    """The run is found again by its id, and its events are in its journal."""
    with (
        fake_model_process(tmp_path / "model", Script(rules=RULES)) as model,
        remote_gateway(tmp_path / "far", model) as url,
    ):
        async with restarted_gateway(
            tmp_path, GATEWAY_PROXY_URL=url, GATEWAY_PROXY_KEY=KEY
        ) as chat:
            for one in CHATS:
                chat.say(f"question {one}", chat=one)
            await run_until_killed(chat, model, place)
            await run_until_answered(chat)
        assert asked(model) == dict.fromkeys(CHATS, 1)
