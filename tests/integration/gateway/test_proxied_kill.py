"""A gateway killed while another runs its turns: nothing is lost, no answer asked for twice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_house import KEY
from hermes.gateway.delivery import MARK
from hermes.testing.mock_openai import Reply, Rule, Script
from hermes.testing.world import check_seen
from processes import PATIENCE, MockModel, mock_model

CHILD = Path(__file__).with_name("crashing_proxy.py")
FAR = CHILD.parents[1] / "api" / "runs_process.py"
CHATS = ("a", "b")
UNANSWERED = ["before ack", "after ack", "before asking", "in mid-answer"]
ANSWERED = ["after the answer", "before end", "after end", "before send", "after send"]
RULES = [Rule(f"question {chat}", [Reply(f"answer {chat}", chunk=3)]) for chat in CHATS]


def start(folder: Path, place: str, url: str, *key: str) -> "subprocess.Popen[bytes]":
    """A gateway that has reached the place, or is done with everything."""
    reader, writer = os.pipe()
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(folder)}
    command = [sys.executable, str(CHILD), str(folder), place, str(writer), url, *key]
    child = subprocess.Popen(command, pass_fds=[writer], env=env)
    os.close(writer)
    reached = os.read(reader, 1)
    os.close(reader)
    assert reached, "the gateway broke"
    return child


def kill(child: "subprocess.Popen[bytes]") -> None:
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE) == -signal.SIGKILL


def write_questions(folder: Path) -> None:
    rows = [{"key": chat, "chat": chat, "text": f"question {chat}"} for chat in CHATS]
    (folder / "updates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def far_gateway(home: Path, model: MockModel) -> Iterator[str]:
    """The address of a gateway of ours, in a process of its own."""
    home.mkdir()
    command = [sys.executable, str(FAR), str(home), model.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def seen(folder: Path, chat: str) -> list[str]:
    posts = folder / "posts.jsonl"
    rows = [json.loads(line) for line in posts.read_text().splitlines()] if posts.exists() else []
    return [row["text"] for row in rows if row["chat"] == chat]


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
def test_kill_9_anywhere(tmp_path: Path, place: str) -> None:
    write_questions(tmp_path)
    with mock_model(tmp_path / "far", Script(rules=RULES)) as far:
        url = far.url.removesuffix("/v1")
        kill(start(tmp_path, place, url))
        before = [len(far.requests(f"question {chat}")) for chat in CHATS]
        assert start(tmp_path, "", url).wait(PATIENCE) == 0
        asked = {chat: far.requests(f"question {chat}") for chat in CHATS}
    expected = {chat: [f"answer {chat}"] for chat in CHATS}
    check_seen(expected, lambda chat: seen(tmp_path, chat), MARK)
    # Both chats are at work at once: the one that was not at the place may be anywhere before it.
    assert max(before) <= 1
    assert all(len(bodies) <= 2 for bodies in asked.values())
    assert all(body == bodies[0] for bodies in asked.values() for body in bodies)
    if place in ANSWERED:
        assert min(len(bodies) for bodies in asked.values()) == 1


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
def test_kill_9_anywhere_runs_no_turn_of_a_gateway_of_ours_twice(
    tmp_path: Path, place: str
) -> None:
    """The run is found again by its name; what it said meanwhile is in its journal."""
    write_questions(tmp_path)
    with (
        mock_model(tmp_path / "model", Script(rules=RULES)) as model,
        far_gateway(tmp_path / "far", model) as url,
    ):
        kill(start(tmp_path, place, url, KEY))
        assert start(tmp_path, "", url, KEY).wait(PATIENCE) == 0
        asked = {chat: model.requests(f"question {chat}") for chat in CHATS}
    expected = {chat: [f"answer {chat}"] for chat in CHATS}
    check_seen(expected, lambda chat: seen(tmp_path, chat), MARK)
    assert {chat: len(bodies) for chat, bodies in asked.items()} == dict.fromkeys(CHATS, 1)
