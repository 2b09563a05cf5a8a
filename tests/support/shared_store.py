"""Two real gateway processes with homes of their own and one store, on one platform account."""

import signal
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
from msgspec import structs

from hermes.app.service.status import GatewayState, read_state
from hermes.config.home import Home
from support.chat_platform.model import ModelCall
from support.chat_platform.server import PlatformServer, serve_platform
from support.chat_platform.state import PlatformPost
from support.cli_process import TEST_TIMEOUT
from support.gateway_instances import GatewayInstance
from support.gateway_process import GatewaySpec, single_profile_spec
from support.homes import CHANNEL_NAME
from support.preloaded_gateway import preloaded_instance

ACCOUNT = "main"
CHAT = "c1"
TTL = 3.0
"""Seconds without a heartbeat after which the other gateway takes over."""


class SharedStore:
    """`questions` are those that the model was asked."""

    def __init__(self, server: PlatformServer, specs: list[GatewaySpec]) -> None:
        self.server = server
        self.specs = specs
        self.questions: list[str] = []
        server.model.on_call = self._asked

    def _asked(self, call: ModelCall) -> None:
        self.questions.append(call.question)
        self.server.changed()

    @asynccontextmanager
    async def gateway(self, number: int) -> AsyncGenerator[GatewayInstance]:
        """Run one of the gateways until the block ends, then kill it."""
        async with (
            preloaded_instance(self.specs[number]) as instance,
            anyio.create_task_group() as group,
        ):
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await self.until(lambda: self.channel_state(number) in {"connected", "standby"})
            yield instance
            instance.kill()

    def channel_state(self, number: int) -> str:
        """The state of the channel in the gateway's state file."""
        home = Path(self.specs[number].home)
        state: GatewayState | None = read_state(Home(home, home).gateway_state)
        channel = state.platforms.get(CHANNEL_NAME) if state else None
        return channel.state if channel else ""

    async def move_channel(self, instance: GatewayInstance) -> None:
        """Let the second gateway receive, while the first one lives and keeps what it runs."""
        database = (Path(self.specs[0].home) / "hermes.db").resolve()
        with closing(sqlite3.connect(database, timeout=TEST_TIMEOUT)) as connection, connection:
            connection.execute(
                "UPDATE claims SET generation = generation + 1,"
                " worker = (SELECT id FROM workers WHERE pid = ?) WHERE name = ?",
                (instance.process.pid, f"channel:{CHANNEL_NAME}"),
            )
        await self.until(lambda: self.channel_state(0) == "standby")
        await self.until(lambda: self.channel_state(1) == "connected")

    def say(self, text: str, chat: str = CHAT) -> None:
        self.server.say(ACCOUNT, chat, "ann", text)

    def texts(self, chat: str = CHAT) -> list[str]:
        return [post.text for post in self.posts(chat)]

    def posts(self, chat: str = CHAT) -> list[PlatformPost]:
        return self.server.platform.posts_in(ACCOUNT, chat)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a condition that processes, files or the platform change."""
        with anyio.fail_after(TEST_TIMEOUT):
            while not true():  # noqa: ASYNC110 - other processes change it
                await anyio.sleep(0.02)

    async def until_posted(self, text: str, chat: str = CHAT) -> None:
        await self.until(lambda: text in self.texts(chat))


@asynccontextmanager
async def shared_store(folder: Path) -> AsyncGenerator[SharedStore]:
    async with serve_platform() as server:
        specs = [
            structs.replace(single_profile_spec(folder / name, server.url, ACCOUNT), worker_ttl=TTL)
            for name in ("one", "two")
        ]
        first, second = (Home(Path(spec.home), Path(spec.home)) for spec in specs)
        second.database.symlink_to(first.database)
        yield SharedStore(server, specs)


async def freeze(shared: SharedStore, instance: GatewayInstance) -> None:
    """Stop the process, but not within a transaction: SQLite would keep the store locked."""
    database = (Path(shared.specs[0].home) / "hermes.db").resolve()
    with anyio.fail_after(TEST_TIMEOUT):
        while True:
            instance.process.send_signal(signal.SIGSTOP)
            while not _is_stopped(instance.process.pid):  # noqa: ASYNC110 - the kernel's state
                await anyio.sleep(0.001)
            if _can_be_written(database):
                return
            thaw(instance)
            await anyio.sleep(0.01)


def _is_stopped(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def _can_be_written(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def thaw(instance: GatewayInstance) -> None:
    instance.process.send_signal(signal.SIGCONT)
