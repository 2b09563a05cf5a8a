"""A fake model that plays one script per request."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from enum import Enum, auto
from typing import TypeAlias

import anyio

from hermes.kit.clock import Clock
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.schema.errors import ModelError
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Stop, Text


class Pause(Enum):
    """A script step that blocks until it is cancelled."""

    FOREVER = auto()


ScriptStep: TypeAlias = ModelChunk | float | ModelError | Pause
Script: TypeAlias = Sequence[ScriptStep] | Callable[[ModelRequest], Sequence[ScriptStep]]


class ScriptedModel:
    """Plays one script per request and records the requests.

    A step is a chunk to yield, seconds to wait (by `clock`, if there is one), an error to raise, or
    `Pause.FOREVER`.
    A script may also be a function of the request. `abandoned_streams` counts the streams
    that were closed before their end.
    """

    def __init__(
        self,
        *scripts: Script,
        name: str = "scripted",
        provider: str = "testing",
        window: int = 200_000,
        clock: Clock | None = None,
    ) -> None:
        self.scripts: list[Script] = list(scripts)
        self.requests: list[ModelRequest] = []
        self.abandoned_streams = 0
        self._name = name
        self._provider = provider
        self._window = window
        self._sleep = anyio.sleep if clock is None else clock.sleep

    @property
    def name(self) -> str:
        return self._name

    @property
    def provider(self) -> str:
        return self._provider

    @property
    def window(self) -> int:
        return self._window

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelChunk]]:
        self.requests.append(request)
        if not self.scripts:
            raise ModelError(f"{self._name} has no script left for request {len(self.requests)}")
        script = self.scripts.pop(0)
        steps = script(request) if callable(script) else script
        async with aclosing(self._play(steps)) as chunks:
            yield chunks

    async def _play(self, steps: Sequence[ScriptStep]) -> AsyncGenerator[ModelChunk]:
        answered = False
        try:
            for step in steps:
                match step:
                    case float() | int():
                        await self._sleep(step)
                    case Pause.FOREVER:
                        await anyio.sleep_forever()
                    case ModelError():
                        answered = True
                        raise step
                    case _:
                        answered = isinstance(step, Assistant)
                        yield step
        finally:
            self.abandoned_streams += not answered

    async def aclose(self) -> None:
        """Do nothing, as there is nothing to close."""


def answer_script(*pieces: str, id: str = "msg_said", stop: Stop = Stop.END) -> list[ScriptStep]:  # noqa: A002 - the message id
    """Return a script for a plain answer: each piece as a delta, then the whole message."""
    whole = Assistant(id, (Text("".join(pieces)),), stop)
    return [*(TextDelta(piece) for piece in pieces), whole]
