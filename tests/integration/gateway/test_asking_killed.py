"""A question outlives the process that asked it: posted once, answered once, done once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes import PATIENCE, wait_for_data

CHILD = Path(__file__).with_name("asking_gateway.py")


class Killed:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hears(self, key: str, text: str) -> None:
        with (self._folder / "updates.jsonl").open("a") as file:
            file.write(json.dumps({"key": key, "chat": "a", "text": text}) + "\n")

    def start(self) -> "tuple[subprocess.Popen[bytes], int]":
        reader, writer = os.pipe()
        env = {"PYTHONPATH": str(CHILD.parents[2]), "PATH": os.defpath, "HOME": str(self._folder)}
        command = [sys.executable, str(CHILD), str(self._folder), str(writer)]
        child = subprocess.Popen(command, pass_fds=[writer], env=env)
        os.close(writer)
        return child, reader

    def seen(self) -> list[str]:
        rows = (self._folder / "posts.jsonl").read_text().splitlines()
        return [json.loads(row)["text"] for row in rows]

    def effects(self) -> list[str]:
        return (self._folder / "effects").read_text().splitlines()


@pytest.mark.parametrize(
    ("word", "effect"), [("yes", "deleted"), ("/approve always", "deleted"), ("/deny", "refused")]
)
def test_an_answer_after_kill_9(tmp_path: Path, word: str, effect: str) -> None:
    house = Killed(tmp_path)
    house.hears("1", "clean up")
    child, reader = house.start()
    assert wait_for_data(reader)
    child.send_signal(signal.SIGKILL)
    child.wait(PATIENCE)
    os.close(reader)
    house.hears("2", word)
    child, reader = house.start()
    assert child.wait(PATIENCE) == 0
    os.close(reader)
    assert house.effects() == [effect]
    questions = [text for text in house.seen() if "May I" in text]
    # Where it is not known whether a post arrived it comes again, and says so.
    assert len([text for text in questions if not text.startswith("(recovered)")]) == 1
    assert house.seen()[-1] == "the end"
