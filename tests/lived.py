"""One chat with the real gateway process on the test platform, over several of its lives."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import structs

from hermes.testing.gateway_process import Spec, alone
from hermes.testing.lives import Life, living
from hermes.testing.platform.mind import Thought
from hermes.testing.platform.server import PlatformServer, serve
from hermes.testing.platform.truth import Shown
from processes import PATIENCE

ACCOUNT = "main"


class Lived:
    """`thoughts` are the questions that the model was asked."""

    def __init__(self, server: PlatformServer, spec: Spec) -> None:
        self.spec = spec
        self.thoughts: list[str] = []
        self._server = server
        server.mind.heard = self._think

    def _think(self, thought: Thought) -> None:
        self.thoughts.append(thought.question)
        self._server.changed()

    @asynccontextmanager
    async def life(self, die_at: str = "") -> AsyncGenerator[Life]:
        """Until the block ends, and then as by a power failure."""
        spec = structs.replace(self.spec, die_at=die_at)
        async with living(spec) as life, anyio.create_task_group() as group:
            group.start_soon(life.watch)
            yield life
            life.kill()

    async def dies_at(self, place: str) -> None:
        """A life that ends where it is told to."""
        with anyio.fail_after(PATIENCE):
            async with living(structs.replace(self.spec, die_at=place)) as life:
                await life.watch()
        assert life.killed

    def say(self, text: str, *, chat: str = "c1", to: Shown | None = None) -> None:
        self._server.say(ACCOUNT, chat, "ann", text, to.id if to else None)

    async def until(self, true: Callable[[], bool]) -> None:
        with anyio.fail_after(PATIENCE):
            await self._server.until(true)

    def posts(self, words: str = "", chat: str = "c1") -> list[Shown]:
        return [one for one in self._server.truth.seen(ACCOUNT, chat) if words in one.text]

    async def sees(self, words: str, chat: str = "c1") -> Shown:
        await self.until(lambda: bool(self.posts(words, chat)))
        return self.posts(words, chat)[-1]

    async def is_asked(self, question: str, times: int = 1) -> None:
        await self.until(lambda: self.thoughts.count(question) >= times)


@asynccontextmanager
async def lived(folder: Path, **env: str) -> AsyncGenerator[Lived]:
    async with serve() as server:
        yield Lived(server, alone(folder, server.url, ACCOUNT, env))
