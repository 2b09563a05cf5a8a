"""The socket server of a home, run in a separate process."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import AgentClient, ConversationOptions
from hermes.ipc.conversation_service import open_in_process
from hermes.ipc.socket_client import open_socket_client
from support.cli_process import TEST_TIMEOUT, HermesCli, wait_for_data
from support.preloaded_python import PreloadedPython

SERVER_SCRIPT = Path(__file__).parent / "run_ipc_server.py"
CLIENT_KINDS = ("here", "remote")

OpenTestClient = Callable[..., AbstractContextManager[AgentClient]]
"""Opens a client with these conversation options."""


class IpcServerProcess:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self._output: list[str] = []

    def expect(self, word: str) -> None:
        """Expect the next word of its output; several may arrive together."""
        assert self.process.stdout is not None
        if not self._output:
            self._output = wait_for_data(self.process.stdout.fileno()).decode().split()
        assert self._output.pop(0) == word

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(TEST_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TEST_TIMEOUT)


@contextmanager
def ipc_server_process(
    hermes: HermesCli, *arguments: str, **env: str
) -> Iterator[IpcServerProcess]:
    with PreloadedPython(
        [str(SERVER_SCRIPT), *arguments],
        cwd="/",
        env=hermes.env | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        server = IpcServerProcess(process)
        try:
            server.expect("ready")
            yield server
        finally:
            server.stop()


@contextmanager
def client_opener(kind: str, hermes: HermesCli) -> Iterator[OpenTestClient]:
    """Yield a function that opens a client in this process, or through a socket server."""
    env = Env(hermes.env)
    home = resolve_home(env)

    def open_here(**options: object) -> AbstractContextManager[AgentClient]:
        return open_in_process(home, env, ConversationOptions(cwd=str(hermes.work), **options))

    def open_remote(**options: object) -> AbstractContextManager[AgentClient]:
        return open_socket_client(
            home.path, env, ConversationOptions(cwd=str(hermes.work), **options)
        )

    if kind == "here":
        yield open_here
        return
    with ipc_server_process(hermes):
        yield open_remote
