"""One chat with the real gateway process on the test platform, across restarts."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import structs

from support.chat_platform.model import ModelCall
from support.chat_platform.server import PlatformServer, serve_platform
from support.chat_platform.state import PlatformPost
from support.cli_process import TEST_TIMEOUT
from support.gateway_instances import GatewayInstance
from support.gateway_process import GatewaySpec, single_profile_spec
from support.preloaded_gateway import preloaded_instance

ACCOUNT = "main"


class RestartedGateway:
    """`thoughts` are the questions that the model was asked."""

    def __init__(self, server: PlatformServer, spec: GatewaySpec) -> None:
        self.spec = spec
        self.questions: list[str] = []
        self._server = server
        server.model.on_call = self._think

    def _think(self, thought: ModelCall) -> None:
        self.questions.append(thought.question)
        self._server.changed()

    @asynccontextmanager
    async def run(self, die_at: str = "") -> AsyncGenerator[GatewayInstance]:
        """Run until the block ends, then kill it like a power failure."""
        spec = structs.replace(self.spec, die_at=die_at)
        async with preloaded_instance(spec) as life, anyio.create_task_group() as group:
            group.start_soon(life.watch)
            yield life
            life.kill()

    async def crash_at(self, place: str) -> None:
        """Run until it crashes at this failpoint."""
        with anyio.fail_after(TEST_TIMEOUT):
            async with preloaded_instance(structs.replace(self.spec, die_at=place)) as life:
                await life.watch()
        assert life.killed

    def say(self, text: str, *, chat: str = "c1", to: PlatformPost | None = None) -> None:
        self._server.say(ACCOUNT, chat, "ann", text, to.id if to else None)

    async def until(self, true: Callable[[], bool]) -> None:
        with anyio.fail_after(TEST_TIMEOUT):
            await self._server.until(true)

    def posts(self, words: str = "", chat: str = "c1") -> list[PlatformPost]:
        return [one for one in self._server.platform.posts_in(ACCOUNT, chat) if words in one.text]

    async def wait_for_post(self, words: str, chat: str = "c1") -> PlatformPost:
        await self.until(lambda: bool(self.posts(words, chat)))
        return self.posts(words, chat)[-1]

    async def wait_for_question(self, question: str, times: int = 1) -> None:
        await self.until(lambda: self.questions.count(question) >= times)


@asynccontextmanager
async def restarted_gateway(folder: Path, **env: str) -> AsyncGenerator[RestartedGateway]:
    async with serve_platform() as server:
        yield RestartedGateway(server, single_profile_spec(folder, server.url, ACCOUNT, env))
