"""A gateway that is killed anywhere loses no message and no answer, and doubles none unmarked."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.gateway.delivery import MARK
from hermes.testing.world import check_seen
from processes import PATIENCE, wait_for_data

CHILD = Path(__file__).with_name("crashing_gateway.py")
PLACES = [
    "before ack",
    "after ack",
    "before effect",
    "after effect",
    "before end",
    "after end",
    "before send",
    "after send",
]
CHATS = ("a", "b")


def start(folder: Path, place: str) -> "subprocess.Popen[bytes]":
    """A gateway that has reached the place, or is done with everything."""
    reader, writer = os.pipe()
    env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(folder)}
    command = [sys.executable, str(CHILD), str(folder), place, str(writer)]
    child = subprocess.Popen(command, pass_fds=[writer], env=env)
    os.close(writer)
    reached = wait_for_data(reader)
    os.close(reader)
    assert reached, "the gateway broke"
    return child


def kill_at(folder: Path, place: str) -> None:
    child = start(folder, place)
    child.send_signal(signal.SIGKILL)
    assert child.wait(PATIENCE) == -signal.SIGKILL


def updates(folder: Path, *texts: str) -> None:
    with (folder / "updates.jsonl").open("a") as file:
        for text in texts:
            for chat in CHATS:
                row = {"key": f"{chat}-{text}", "chat": chat, "text": f"question {chat}-{text}"}
                file.write(json.dumps(row) + "\n")


def seen(folder: Path, chat: str) -> list[str]:
    posts = folder / "posts.jsonl"
    rows = [json.loads(line) for line in posts.read_text().splitlines()] if posts.exists() else []
    return [row["text"] for row in rows if row["chat"] == chat]


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_lost_after_kill_9(tmp_path: Path, place: str) -> None:
    updates(tmp_path, "1")
    (tmp_path / "effects").touch()
    kill_at(tmp_path, place)
    child = start(tmp_path, "")
    assert child.wait(PATIENCE) == 0
    expected = {chat: [f"answer to question {chat}-1"] for chat in CHATS}
    check_seen(expected, lambda chat: seen(tmp_path, chat), MARK)
    effects = (tmp_path / "effects").read_text().splitlines()
    # Where the outcome is unknown the model is told so: nothing is done again by itself.
    assert len(effects) == len(set(effects))
    assert set(effects) <= {f"question {chat}-1" for chat in CHATS}


def test_a_session_that_kills_the_program_is_set_aside(tmp_path: Path) -> None:
    updates(tmp_path, "reboot")
    for _ in range(6):
        child = start(tmp_path, "after effect")
        child.send_signal(signal.SIGKILL)
        if child.wait(PATIENCE) == 0:
            break
    for chat in CHATS:
        (notice,) = {text.removeprefix(MARK) for text in seen(tmp_path, chat)}
        assert "set aside" in notice
