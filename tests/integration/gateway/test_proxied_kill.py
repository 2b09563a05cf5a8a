"""A gateway killed while another runs its turns: nothing is lost, no answer asked for twice."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.gateway.delivery import MARK
from hermes.testing.mock_openai import Reply, Rule, Script
from hermes.testing.world import check_seen
from processes import PATIENCE, MockModel, mock_model

CHILD = Path(__file__).with_name("crashing_proxy.py")
CHATS = ("a", "b")
UNANSWERED = ["before ack", "after ack", "before asking", "in mid-answer"]
ANSWERED = ["after the answer", "before end", "after end", "before send", "after send"]
RULES = [Rule(f"question {chat}", [Reply(f"answer {chat}", chunk=3)]) for chat in CHATS]


def start(folder: Path, place: str, far: MockModel) -> "subprocess.Popen[bytes]":
    """A gateway that has reached the place, or is done with everything."""
    reader, writer = os.pipe()
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(folder)}
    url = far.url.removesuffix("/v1")
    command = [sys.executable, str(CHILD), str(folder), place, str(writer), url]
    child = subprocess.Popen(command, pass_fds=[writer], env=env)
    os.close(writer)
    reached = os.read(reader, 1)
    os.close(reader)
    assert reached, "the gateway broke"
    return child


def seen(folder: Path, chat: str) -> list[str]:
    posts = folder / "posts.jsonl"
    rows = [json.loads(line) for line in posts.read_text().splitlines()] if posts.exists() else []
    return [row["text"] for row in rows if row["chat"] == chat]


@pytest.mark.parametrize("place", [*UNANSWERED, *ANSWERED])
def test_kill_9_anywhere(tmp_path: Path, place: str) -> None:
    rows = [{"key": chat, "chat": chat, "text": f"question {chat}"} for chat in CHATS]
    (tmp_path / "updates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with mock_model(tmp_path / "far", Script(rules=RULES)) as far:
        child = start(tmp_path, place, far)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        before = [len(far.requests(f"question {chat}")) for chat in CHATS]
        assert start(tmp_path, "", far).wait(PATIENCE) == 0
        asked = {chat: far.requests(f"question {chat}") for chat in CHATS}
    expected = {chat: [f"answer {chat}"] for chat in CHATS}
    check_seen(expected, lambda chat: seen(tmp_path, chat), MARK)
    # Both chats are at work at once: the one that was not at the place may be anywhere before it.
    assert max(before) <= 1
    assert all(len(bodies) <= 2 for bodies in asked.values())
    assert all(body == bodies[0] for bodies in asked.values() for body in bodies)
    if place in ANSWERED:
        assert min(len(bodies) for bodies in asked.values()) == 1
