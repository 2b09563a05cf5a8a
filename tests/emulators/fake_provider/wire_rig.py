"""Set up a wire model together with the fake provider it talks to."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio

from emulators.fake_provider.server import (
    Dialect,
    FakeProviderServer,
    RecordedBody,
    serve_provider,
)
from hermes.kit.clock import SystemClock
from hermes.models.endpoint import Endpoint, EndpointSettings
from hermes.models.images import ImageUrls
from hermes.models.providers import ServedModel
from hermes.models.wire.codec import Wire
from hermes.models.wire_model import WireModel
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    NotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
)
from hermes.schema.messages import Media, Stop
from hermes.testing.contracts.model import ScriptedAnswer
from hermes.testing.fake_openai import Call, Fault, Reply, Script, TokenCounts

SERVED_MODEL = ServedModel(model="mock-model", provider="mock", window=128_000)

FAULT_NAMES: Mapping[type[ModelError], str] = {
    Unauthorized: "unauthorized",
    OutOfCredit: "out_of_credit",
    RateLimited: "rate_limited",
    Overloaded: "overloaded",
    ContextTooLong: "context_too_long",
    PolicyRefused: "policy",
    ModelNotFound: "model_not_found",
    BadRequest: "bad_request",
}
_FINISHES = {Stop.END: "stop", Stop.LENGTH: "length", Stop.REFUSED: "content_filter"}

MakeWire: TypeAlias = Callable[[ServedModel], Wire]


class FakeBlobs:
    """Read-only blobs, by digests chosen by the test."""

    def __init__(self, **data: bytes) -> None:
        self.data = data

    async def put(self, data: bytes, media_type: str, name: str = "") -> Media:
        raise NotFound("FakeBlobs is read-only")

    async def read(self, digest: str) -> bytes:
        if digest not in self.data:
            raise NotFound(digest)
        return self.data[digest]


def reply_for(played: ScriptedAnswer) -> Reply:
    """Convert an answer of the contract to a reply of the fake server."""
    usage = played.usage
    return Reply(
        text="".join(played.text),
        reasoning="".join(played.thought),
        calls=[Call(name, args, call_id) for call_id, name, args in played.calls],
        finish="" if played.stop is Stop.TOOLS else _FINISHES[played.stop],
        usage=TokenCounts(usage.input, usage.output, usage.cache_read, usage.reasoning),
        chunk=3,
        fault=_fault(played),
    )


def _fault(played: ScriptedAnswer) -> Fault | None:
    if played.error:
        return Fault("status", named=FAULT_NAMES[played.error])
    chunks = -(-len("".join(played.text)) // 3)
    if played.hangs:
        return Fault("hang", after=chunks)
    return Fault("cut", after=chunks) if played.breaks else None


@asynccontextmanager
async def model_at(
    url: str,
    make: MakeWire,
    served: ServedModel = SERVED_MODEL,
    *,
    key: str = "",
    idle: float = 5.0,
    blobs: FakeBlobs | None = None,
) -> AsyncGenerator[WireModel]:
    endpoint = Endpoint(EndpointSettings(base_url=url, idle=idle, connect=2.0, grace=0.05))
    images = ImageUrls(blobs or FakeBlobs())
    try:
        yield WireModel(endpoint, served, images, SystemClock(), make(served), key)
    finally:
        await endpoint.client.aclose()


@asynccontextmanager
async def scripted_wire_model(
    dialect: Dialect,
    make: MakeWire,
    *replies: Reply,
    recorded: Sequence[RecordedBody] = (),
    idle: float = 5.0,
) -> AsyncGenerator[tuple[WireModel, FakeProviderServer]]:
    script = Script(replies=list(replies))
    async with (
        serve_provider(dialect, script, recorded=recorded) as server,
        model_at(server.url, make, idle=idle) as model,
    ):
        yield model, server


class WireRig:
    """Implements `ModelRig` for one wire and the matching server dialect."""

    def __init__(self, dialect: Dialect, make: MakeWire) -> None:
        self._dialect = dialect
        self._make = make
        self._server: FakeProviderServer | None = None

    @asynccontextmanager
    async def playing(self, *answers: ScriptedAnswer) -> AsyncGenerator[WireModel]:
        replies = map(reply_for, answers)
        async with scripted_wire_model(self._dialect, self._make, *replies) as (
            model,
            self._server,
        ):
            yield model

    async def saw_disconnect(self) -> bool:
        if self._server is None:
            return False
        last = self._server.requests[-1]
        with anyio.fail_after(60):
            await last.ended.wait()
        return not last.completed
