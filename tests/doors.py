"""The local door of a home, served by a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import PATIENCE, Hermes, wait_for_data

PROGRAM = Path(__file__).parent / "integration/local/door_process.py"


class DoorProcess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._said: list[str] = []

    def hears(self, word: str) -> None:
        """The next word it says; it may have said several at once."""
        assert self.process.stdout is not None
        if not self._said:
            self._said = wait_for_data(self.process.stdout.fileno()).decode().split()
        assert self._said.pop(0) == word

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def die(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


@contextmanager
def served(hermes: Hermes, *words: str, **env: str) -> Iterator[DoorProcess]:
    with subprocess.Popen(
        [sys.executable, str(PROGRAM), *words],
        cwd="/",
        env=hermes.env | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        door = DoorProcess(process)
        try:
            door.hears("ready")
            yield door
        finally:
            door.stop()
