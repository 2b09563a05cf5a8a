"""The local door of a home, served by a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.local.here import open_here
from hermes.local.partner import Partner, Start
from hermes.local.remote import open_remote
from processes import PATIENCE, Hermes, wait_for_data

PROGRAM = Path(__file__).parent / "integration/local/door_process.py"
WAYS = ("here", "remote")

Opener = Callable[..., AbstractContextManager[Partner]]
"""What is given to it is about the start."""


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


@contextmanager
def partners(way: str, hermes: Hermes) -> Iterator[Opener]:
    """Somebody to talk to in this process, or through a door that is served meanwhile."""
    env = Env(hermes.env)
    home = resolve_home(env)

    def here(**given: object) -> AbstractContextManager[Partner]:
        return open_here(home, env, Start(cwd=str(hermes.work), **given))

    def remote(**given: object) -> AbstractContextManager[Partner]:
        return open_remote(home.path, env, Start(cwd=str(hermes.work), **given))

    if way == "here":
        yield here
        return
    with served(hermes):
        yield remote
