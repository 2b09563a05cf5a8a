"""Measure stream parsing: time per event, and CPU time for a thousand tokens."""

import time
from collections.abc import Callable, Iterator

import anyio

from bench.report import Number
from emulators.fake_provider.anthropic import AnthropicDialect
from emulators.fake_provider.gemini import GeminiDialect
from emulators.fake_provider.openai import ResponsesDialect
from emulators.fake_provider.wire_rig import FakeBlobs
from hermes.kit.clock import SystemClock
from hermes.kit.sse import SseReader
from hermes.models.endpoint import EndpointSettings, StreamCoalescer
from hermes.models.http_client import HttpResponse
from hermes.models.images import ImageUrls
from hermes.models.providers import ServedModel
from hermes.models.wire.anthropic_messages import AnthropicWire
from hermes.models.wire.chat_completions import ChatWire
from hermes.models.wire.codec import Wire
from hermes.models.wire.gemini_native import GeminiWire
from hermes.models.wire.openai_responses import ResponsesWire
from hermes.models.wire_model import WireModel
from hermes.ports.model import ModelRequest
from hermes.schema.messages import Text, User
from hermes.testing.fake_openai.frames import DONE, stream_frames
from hermes.testing.fake_openai.script import Reply
from hermes.testing.fake_openai.server import RecordedRequest

TOKENS = 20_000
WORD = "word "
ROUNDS = 5
READ = 16 * 1024
SERVED = ServedModel(model="m", provider="p", window=128_000)
ASKED = ModelRequest("", [User("u", (Text("go"),))])


def measure() -> Iterator[Number]:
    for name, make, frames in _wires():
        rate = max(_read(make(SERVED), frames) for _ in range(ROUNDS))
        yield Number(
            name=f"{name}: CPU per stream event",
            value=1e6 / rate,
            unit="µs",
            bar=10,
        )
        cost = min(anyio.run(_driven, make(SERVED), frames) for _ in range(ROUNDS))
        yield Number(
            name=f"{name}: CPU for 1,000 tokens, one read each", value=cost, unit="ms", bar=10
        )


def _wires() -> Iterator[tuple[str, Callable[[ServedModel], Wire], list[bytes]]]:
    reply = Reply(text=WORD * TOKENS, chunk=len(WORD))
    asked = RecordedRequest("POST", "/v1/models/m:streamGenerateContent", {}, b'{"model":"m"}')
    chat = [*stream_frames(reply, "m", 1, usage=True), DONE]
    yield "chat completions", ChatWire, chat
    yield "anthropic", AnthropicWire, AnthropicDialect().frames(reply, asked, 1)
    yield "responses", ResponsesWire, ResponsesDialect().frames(reply, asked, 1)
    yield "gemini", GeminiWire, GeminiDialect().frames(reply, asked, 1)


def _read(wire: Wire, frames: list[bytes]) -> float:
    """Return events per second, with reads as large as those of a busy socket."""
    whole = b"".join(frames)
    reads = [whole[at : at + READ] for at in range(0, len(whole), READ)]
    reader, stream = SseReader(), wire.stream()
    begun = time.process_time()
    for data in reads:
        stream.feed([event.data for event in reader.feed(data) if event.data != b"[DONE]"])
    took = time.process_time() - begun
    _, answer = stream.finish("m", "p")
    assert answer.text == WORD * TOKENS
    return len(frames) / took


class _Replay:
    """An endpoint that returns one frame per read."""

    settings = EndpointSettings(base_url="http://replay/v1")
    coalescer = StreamCoalescer()

    def __init__(self, frames: list[bytes]) -> None:
        self._frames = iter(frames)

    @property
    def client(self) -> "_Replay":
        return self

    async def post(self, *_: object) -> "_ReplayedResponse":
        response = _ReplayedResponse(frames=self._frames)
        response.headers["content-type"] = "text/event-stream"
        response.start(200)
        return response

    def release(self, response: "_ReplayedResponse") -> None:
        """Nothing to release."""


class _ReplayedResponse(HttpResponse):
    frames: Iterator[bytes] = iter(())

    async def readany(self) -> bytes:
        return next(self.frames, b"")


async def _driven(wire: Wire, frames: list[bytes]) -> float:
    """Return milliseconds of CPU for a thousand tokens, from the read to the consumer."""
    model = WireModel(_Replay(frames), SERVED, ImageUrls(FakeBlobs()), SystemClock(), wire)  # pyright: ignore[reportArgumentType]
    begun = time.process_time()
    async with model.stream(ASKED) as chunks:
        count = 0
        async for _ in chunks:
            count += 1
    assert count == TOKENS + 1
    return (time.process_time() - begun) * 1e6 / TOKENS
