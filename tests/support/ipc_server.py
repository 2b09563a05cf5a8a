"""The local door of a home, served by a process of its own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import AgentClient, ConversationOptions
from hermes.ipc.in_process import open_in_process
from hermes.ipc.socket_client import open_socket_client
from support.cli_process import TEST_TIMEOUT, HermesCli, wait_for_data

SERVER_SCRIPT = Path(__file__).parents[1] / "integration/local/door_process.py"
CLIENT_KINDS = ("here", "remote")

OpenTestClient = Callable[..., AbstractContextManager[AgentClient]]
"""What is given to it is about the start."""


class IpcServerProcess:
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
            return self.process.wait(TEST_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def die(self) -> None:
        self.process.kill()
        self.process.wait(TEST_TIMEOUT)


@contextmanager
def ipc_server_process(hermes: HermesCli, *words: str, **env: str) -> Iterator[IpcServerProcess]:
    with subprocess.Popen(
        [sys.executable, str(SERVER_SCRIPT), *words],
        cwd="/",
        env=hermes.env | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        door = IpcServerProcess(process)
        try:
            door.hears("ready")
            yield door
        finally:
            door.stop()


@contextmanager
def client_opener(way: str, hermes: HermesCli) -> Iterator[OpenTestClient]:
    """Somebody to talk to in this process, or through a door that is served meanwhile."""
    env = Env(hermes.env)
    home = resolve_home(env)

    def here(**given: object) -> AbstractContextManager[AgentClient]:
        return open_in_process(home, env, ConversationOptions(cwd=str(hermes.work), **given))

    def remote(**given: object) -> AbstractContextManager[AgentClient]:
        return open_socket_client(
            home.path, env, ConversationOptions(cwd=str(hermes.work), **given)
        )

    if way == "here":
        yield here
        return
    with ipc_server_process(hermes):
        yield remote
