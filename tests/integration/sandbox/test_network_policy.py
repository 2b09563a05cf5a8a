"""The network setting is enforced for commands and programs."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes.app.build import App
from hermes.schema.scope import Role, Scope
from support.app_profile import call_tool, make_scope, open_profile


class Listener:
    """Counts connections."""

    def __init__(self, listener: socket.socket) -> None:
        self._socket = listener
        self.port: int = listener.getsockname()[1]

    def accepted(self) -> int:
        count = 0
        while True:
            try:
                connection, _ = self._socket.accept()
            except BlockingIOError:
                return count
            connection.close()
            count += 1


@contextmanager
def listening() -> Generator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield Listener(listener)


async def connections(app: App, scope: Scope, listener: Listener) -> tuple[int, int]:
    """Count the connections made by a command and by a program."""
    command = f"timeout 20 bash -c 'echo hello > /dev/tcp/127.0.0.1/{listener.port}'"
    await call_tool(app, scope, "terminal", command=command)
    by_command = listener.accepted()
    code = f"import socket\nsocket.create_connection(('127.0.0.1', {listener.port}), 20)"
    await call_tool(app, scope, "execute_code", code=code)
    return by_command, listener.accepted()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_network_is_disabled_by_default(tmp_path: Path, backend: str) -> None:
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n") as app:
        with listening() as listener:
            assert await connections(app, make_scope(tmp_path), listener) == (0, 0)
        assert "network" not in app.sandboxes.describe("cli")


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_network_setting_does_not_apply_to_guests(tmp_path: Path, backend: str) -> None:
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n  network: true\n") as app:
        with listening() as listener:
            assert await connections(app, make_scope(tmp_path), listener) == (1, 1)
            assert await connections(app, make_scope(tmp_path, role=Role.GUEST), listener) == (0, 0)
        assert app.sandboxes.describe("cli").endswith("with network access")


async def test_network_can_be_set_per_platform(tmp_path: Path) -> None:
    settings = "  network: true\n  network_by_platform:\n    telegram: false\n    discord: true\n"
    async with open_profile(tmp_path, f"terminal:\n  backend: bubblewrap\n{settings}") as app:
        with listening() as listener:
            assert await connections(app, make_scope(tmp_path, "telegram"), listener) == (0, 0)
            assert await connections(app, make_scope(tmp_path, "discord"), listener) == (1, 1)


async def test_output_with_network_access_is_untrusted(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: bubblewrap\n  network: true\n") as app:
        assert (await call_tool(app, make_scope(tmp_path), "terminal", command="echo hi")).foreign
