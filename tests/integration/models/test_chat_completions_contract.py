from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hermes.kit.clock import SystemClock
from hermes.models.chat_completions import ChatCompletions, Served
from hermes.models.endpoint import Endpoint, Place
from hermes.models.images import Images
from hermes.ports.model import Model
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelNotFound,
    NotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
)
from hermes.schema.messages import Media, Stop
from hermes.testing.contracts.model import ModelContract, Played
from hermes.testing.mock_openai import Call, Fault, MockServer, Reply, Script, Spent, serve

NAMED = {
    Unauthorized: "unauthorized",
    OutOfCredit: "out_of_credit",
    RateLimited: "rate_limited",
    Overloaded: "overloaded",
    ContextTooLong: "context_too_long",
    PolicyRefused: "policy",
    ModelNotFound: "model_not_found",
    BadRequest: "bad_request",
}
FINISHES = {Stop.END: "stop", Stop.LENGTH: "length", Stop.REFUSED: "content_filter"}


class NoBlobs:
    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise AssertionError("nothing is stored here")

    async def read(self, digest: str) -> bytes:
        raise NotFound(digest)


def reply(played: Played) -> Reply:
    usage = played.usage
    return Reply(
        text="".join(played.text),
        reasoning="".join(played.thought),
        calls=[Call(name, args, identity) for identity, name, args in played.calls],
        finish="" if played.stop is Stop.TOOLS else FINISHES[played.stop],
        usage=Spent(usage.input, usage.output, usage.cache_read, usage.reasoning),
        chunk=3,
        fault=fault(played),
    )


def fault(played: Played) -> Fault | None:
    if played.error:
        return Fault("status", named=NAMED[played.error])
    chunks = -(-len("".join(played.text)) // 3)
    if played.hangs:
        return Fault("hang", after=chunks)
    return Fault("cut", after=chunks) if played.breaks else None


class MockRig:
    server: MockServer

    @asynccontextmanager
    async def playing(self, *answers: Played) -> AsyncIterator[Model]:
        async with serve(Script(replies=[reply(one) for one in answers])) as self.server:
            endpoint = Endpoint(Place(base_url=self.server.url))
            served = Served(model="mock-model", provider="mock", window=128_000)
            try:
                yield ChatCompletions(endpoint, served, Images(NoBlobs()), SystemClock())
            finally:
                await endpoint.aclose()

    async def saw_us_leave(self) -> bool:
        last = self.server.requests[-1]
        with anyio.fail_after(5):
            await last.ended.wait()
        return not last.completed


class TestChatCompletions(ModelContract):
    @pytest.fixture
    def rig(self) -> MockRig:
        return MockRig()
