"""A model behind an OpenAI-compatible chat completions API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.sse import SseReader, SseTooLong
from hermes.models.address import shown_url
from hermes.models.endpoint import (
    ERROR_BODY,
    Endpoint,
    NoProgress,
    Place,
    TooLarge,
    beginning_of,
    broken,
    whole_of,
)
from hermes.models.error_body import shown
from hermes.models.errors import Origin, classify, url_hint
from hermes.models.images import Images
from hermes.models.profile import Profile
from hermes.models.wire.chat_request import ChatRequestCodec
from hermes.models.wire.chat_stream import (
    ChatStream,
    ErrorInStream,
    NotAChunk,
    StreamChunk,
    StreamDelta,
)
from hermes.ports.model import Chunk, Request
from hermes.schema.errors import BadRequest, ModelError, Overloaded, Unreachable
from hermes.schema.events import Notice

_PATH = "/chat/completions"
_WHOLE_BODY = 32 * 1024 * 1024
_ONE_EVENT = 16 * 1024 * 1024
_BROKEN_FINISHES = {"error", "insufficient_system_resource", "network_error", "abort"}


class Served(Struct, frozen=True, kw_only=True):
    """A model as one provider serves it."""

    model: str
    provider: str
    window: int
    profile: Profile = Profile()
    max_output: int | None = None
    extra: Mapping[str, Any] = {}
    key_env: str = ""
    auth_header: str = "authorization"
    local: bool = False


class ChatCompletions:
    """Implements `ports.model.Model`. The endpoint belongs to whoever made it."""

    def __init__(
        self,
        endpoint: Endpoint,
        served: Served,
        images: Images,
        clock: Clock,
        key: str = "",
        codec: ChatRequestCodec | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._served = served
        self._images = images
        self._clock = clock
        self._codec = codec or ChatRequestCodec(
            served.model, served.provider, served.profile, served.max_output, served.extra
        )
        self._decoder = msgspec.json.Decoder(StreamChunk, strict=False)
        self._origin = Origin(
            provider=served.provider,
            model=served.model,
            base_url=endpoint.place.base_url,
            key_env=served.key_env,
            key=key,
            local=served.local,
        )

    @property
    def name(self) -> str:
        return self._served.model

    @property
    def provider(self) -> str:
        return self._served.provider

    @property
    def window(self) -> int:
        return self._served.window

    def keyed(self, key: str) -> "ChatCompletions":
        """The same model asked with another key, over the same connections."""
        return ChatCompletions(
            self._endpoint, self._served, self._images, self._clock, key, self._codec
        )

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Chunk]]:
        # The body has no name here: it is let go as soon as it is sent, not when all is said.
        async with self._endpoint.post(
            _PATH, await self._body(request), self._headers(), self._origin
        ) as response:
            await self._check(response)
            events = _Events(response, self._endpoint.place)
            async with aclosing(self._read(events)) as chunks:
                yield chunks
            await events.drain()

    async def _body(self, request: Request) -> bytes:
        shown = self._codec.images_in(request.messages)
        return self._codec.body(request, await self._images.urls(shown) if shown else None)

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        if key := self._origin.key:
            name = self._served.auth_header
            headers[name] = f"Bearer {key}" if name == "authorization" else key
        return headers

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        """Raise what the provider says instead of an answer."""
        if response.status == 200:
            if response.content_type == "text/html":
                raise BadRequest(
                    f"{self._origin.address} answered with a web page", hint=url_hint(self._origin)
                )
            return
        if 300 <= response.status < 400:
            target = shown_url(response.headers.get("location", "another address"))
            raise BadRequest(
                f"{self._origin.address} sends us to {shown(target)}", hint=url_hint(self._origin)
            )
        body = await beginning_of(response.content, ERROR_BODY, self._endpoint.place.idle)
        raise self._classified(response.status, body, response.headers)

    def _classified(
        self, status: int | None, body: bytes, headers: Mapping[str, str]
    ) -> ModelError:
        return classify(status, body, headers, self._origin, self._clock.now())

    async def _read(self, events: "_Events") -> AsyncGenerator[Chunk]:
        stream = ChatStream(self._decoder)
        try:
            while not events.done and not stream.runaway:
                before = stream.size, stream.finish_reason
                batch = await events.next(hurry=bool(stream.finish_reason))
                for delta in stream.feed(batch):
                    yield delta
                if (stream.size, stream.finish_reason) != before:
                    events.moved()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not stream.finish_reason:
                raise broken(error, self._origin, self._endpoint.place) from error
        except ErrorInStream as error:
            raise self._classified(None, error.body, {}) from error
        except (NotAChunk, SseTooLong, TooLarge) as error:
            raise Unreachable(f"{self._origin.provider} sent a broken stream: {error}") from error
        for delta in self._end(stream, events):
            yield delta
        if stream.runaway:
            yield Notice(f"The answer was cut off: {stream.runaway}.")
        yield stream.answer(self._served.model, self._served.provider)

    def _end(self, stream: ChatStream, events: "_Events") -> Sequence[StreamDelta]:
        """The last deltas, if this was an end at all."""
        if stream.finish_reason in _BROKEN_FINISHES:
            raise Overloaded(f"{self._origin.provider} gave up in mid-answer")
        if not (stream.finish_reason or events.said_done or stream.runaway):
            raise Unreachable(f"{self._origin.provider} stopped in mid-answer")
        return stream.close()


class _Events:
    """The events of a response, one network read at a time.

    Comments, empty events and bytes of an unfinished one are signs of life, no progress:
    they do not make the wait for the next piece of the answer any longer.
    """

    def __init__(self, response: aiohttp.ClientResponse, place: Place) -> None:
        self._place = place
        self._content = response.content
        self._whole = response.content_type == "application/json"
        self._reader = SseReader(_ONE_EVENT)
        self._loop = asyncio.get_running_loop()
        self._moved_at = self._loop.time()
        self.said_done = False
        self.done = False

    def moved(self) -> None:
        """There was a piece of the answer: the wait for the next begins."""
        self._moved_at = self._loop.time()

    async def next(self, *, hurry: bool) -> list[bytes]:
        """Raises `NoProgress` when it took too long; in a hurry that is just the end."""
        pause = self._place.grace if hurry else self._place.longest_pause
        data = await self._data(self._moved_at + pause)
        if data is None and not hurry:
            raise NoProgress
        if self._whole:
            self.done = True
            return [data or b""]
        return self._batch(data or b"")

    async def _data(self, deadline: float) -> bytes | None:
        """None when the deadline has passed."""
        # What is already there is read without a wait, which no timer would notice.
        if self._loop.time() >= deadline:
            return None
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                if self._whole:
                    return await whole_of(self._content, _WHOLE_BODY)
                return await self._content.readany()
        except TimeoutError:
            if not limit.expired():
                raise
        return None

    def _batch(self, data: bytes) -> list[bytes]:
        if data:
            events = self._reader.feed(data)
        else:
            self.done = True
            events = self._reader.close()
        batch: list[bytes] = []
        for event in events:
            if event.data == b"[DONE]":
                self.done = self.said_done = True
                break
            if event.data:
                batch.append(event.data)
        return batch

    async def drain(self) -> None:
        """Take the last bytes of a finished response, so that its connection can serve again."""
        if self.said_done and not self._content.at_eof():
            broken_end = (aiohttp.ClientError, TimeoutError, OSError)
            with anyio.move_on_after(0.1), suppress(*broken_end):
                await self._content.readany()
