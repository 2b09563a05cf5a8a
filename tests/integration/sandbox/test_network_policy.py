"""Whether commands have the network is a setting, and the wall keeps to it."""

import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes.app.build import App
from hermes.schema.scope import Role, Scope
from support.app_profile import call_tool, make_scope, open_profile

pytestmark = pytest.mark.anyio


class Listener:
    """Counts who came: a connection that was made waits until it is accepted."""

    def __init__(self, ears: socket.socket) -> None:
        self._listeners = ears
        self.port: int = ears.getsockname()[1]

    def came(self) -> int:
        count = 0
        while True:
            try:
                visitor, _ = self._listeners.accept()
            except BlockingIOError:
                return count
            visitor.close()
            count += 1


@contextmanager
def listening() -> Generator[Listener]:
    with socket.create_server(("127.0.0.1", 0)) as ears:
        ears.setblocking(False)
        yield Listener(ears)


async def knock(app: App, scope: Scope, ears: Listener) -> tuple[int, int]:
    """How many came from a command, and from a program."""
    command = f"timeout 20 bash -c 'echo hello > /dev/tcp/127.0.0.1/{ears.port}'"
    await call_tool(app, scope, "terminal", command=command)
    by_command = ears.came()
    code = f"import socket\nsocket.create_connection(('127.0.0.1', {ears.port}), 20)"
    await call_tool(app, scope, "execute_code", code=code)
    return by_command, ears.came()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_by_itself_nothing_leaves(tmp_path: Path, backend: str) -> None:
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n") as app:
        with listening() as ears:
            assert await knock(app, make_scope(tmp_path), ears) == (0, 0)
        assert "network" not in app.toolbox.sandboxes.describe("cli")


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_who_wants_it_has_it_and_guests_have_not(tmp_path: Path, backend: str) -> None:
    async with open_profile(tmp_path, f"terminal:\n  backend: {backend}\n  network: true\n") as app:
        with listening() as ears:
            assert await knock(app, make_scope(tmp_path), ears) == (1, 1)
            assert await knock(app, make_scope(tmp_path, role=Role.GUEST), ears) == (0, 0)
        assert app.toolbox.sandboxes.describe("cli").endswith("with network access")


async def test_a_channel_has_a_rule_of_its_own(tmp_path: Path) -> None:
    settings = "  network: true\n  network_by_platform:\n    telegram: false\n    discord: true\n"
    async with open_profile(tmp_path, f"terminal:\n  backend: bubblewrap\n{settings}") as app:
        with listening() as ears:
            assert await knock(app, make_scope(tmp_path, "telegram"), ears) == (0, 0)
            assert await knock(app, make_scope(tmp_path, "discord"), ears) == (1, 1)


async def test_what_came_over_it_is_somebody_elses(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: bubblewrap\n  network: true\n") as app:
        assert (await call_tool(app, make_scope(tmp_path), "terminal", command="echo hi")).foreign
