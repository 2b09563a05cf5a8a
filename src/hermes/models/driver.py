"""A model behind an API: one driver for every wire, whatever language that speaks."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing
from typing import Any

import aiohttp
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.sse import SseTooLong
from hermes.models.address import shown_url
from hermes.models.answer_events import AnswerEvents
from hermes.models.endpoint import ERROR_BODY, Endpoint, TooLarge, beginning_of, broken
from hermes.models.error_body import shown
from hermes.models.errors import Origin, classify, url_hint
from hermes.models.images import Images
from hermes.models.profile import Profile
from hermes.models.wire.stream import AnswerStream, ErrorInStream, NotAChunk, Wire
from hermes.models.wire.thoughts import has_thoughts, is_about_thoughts, without_thoughts
from hermes.models.wire.told import StreamDelta
from hermes.ports.model import Chunk, Request
from hermes.schema.errors import BadRequest, ModelError, Overloaded, Unreachable
from hermes.schema.events import Notice

log = logging.getLogger(__name__)

_BROKEN_FINISHES = {"error", "insufficient_system_resource", "network_error", "abort"}
_TROUBLE = (
    aiohttp.ClientError, TimeoutError, OSError, ErrorInStream, NotAChunk, SseTooLong, TooLarge,
)  # fmt: skip
"""What can go wrong while an answer is read."""
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


class Served(Struct, frozen=True, kw_only=True):
    """A model as one provider serves it. `cache_ttl` is for wires that ask for a cache."""

    model: str
    provider: str
    window: int
    profile: Profile = Profile()
    max_output: int | None = None
    extra: Mapping[str, Any] = {}
    key_env: str = ""
    auth_header: str = "authorization"
    local: bool = False
    cache_ttl: str = "5m"


class WireModel:
    """Implements `ports.model.Model`. The endpoint belongs to whoever made it."""

    def __init__(
        self,
        endpoint: Endpoint,
        served: Served,
        images: Images,
        clock: Clock,
        wire: Wire,
        key: str = "",
    ) -> None:
        self._endpoint = endpoint
        self._served = served
        self._images = images
        self._clock = clock
        self._wire = wire
        self._path = wire.path(endpoint.place.base_url)
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

    def keyed(self, key: str) -> "WireModel":
        """The same model asked with another key, over the same connections."""
        return WireModel(self._endpoint, self._served, self._images, self._clock, self._wire, key)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        return aclosing(self._told(request))

    async def _told(self, request: Request) -> AsyncGenerator[Chunk]:
        response = await self._answered(request)
        try:
            stream = self._wire.stream()
            with closing(self._events(response)) as events:
                while not events.done and not stream.runaway:
                    before = stream.size, stream.finish_reason
                    try:
                        deltas = stream.feed(await events.next(hurry=bool(stream.finish_reason)))
                    except _TROUBLE as error:
                        self._judge(error, stream)
                        break
                    for delta in deltas:
                        yield delta
                    moved = (stream.size, stream.finish_reason) != before
                    events.note(moved=moved, ended=stream.ended)
                for delta in self._end(stream, events):
                    yield delta
                answer = stream.answer(self._served.model, self._served.provider)
                self._wire.heard(request, stream, answer)
                await events.drain()
                yield answer
        finally:
            self._endpoint.let_go(response)

    def _events(self, response: aiohttp.ClientResponse) -> AnswerEvents:
        return AnswerEvents(response, self._endpoint.place, self._endpoint.crowd)

    async def _answered(self, request: Request) -> aiohttp.ClientResponse:
        """The beginning of an answer. What is refused and can be left out, is; once."""
        try:
            return await self._posted(request)
        except BadRequest as error:
            if is_about_thoughts(str(error)) and has_thoughts(request):
                request = without_thoughts(request)
            elif not self._wire.learn(str(error)):
                raise
            log.warning("asking %s again with less: %s", self._origin.provider, error)
            return await self._posted(request)

    async def _posted(self, request: Request) -> aiohttp.ClientResponse:
        # The body has no name here: it is let go as soon as it is sent, not when all is said.
        response = await self._endpoint.post(
            self._path, await self._body(request), self._headers(), self._origin
        )
        try:
            await self._check(response)
        except BaseException:
            self._endpoint.let_go(response)
            raise
        return response

    async def _body(self, request: Request) -> Sequence[bytes]:
        shown = self._wire.images_in(request.messages)
        return self._wire.pieces(request, await self._images.urls(shown) if shown else None)

    def _headers(self) -> dict[str, str]:
        return _HEADERS | self._wire.headers(self._origin.key, self._origin.base_url)

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

    def _judge(self, error: Exception, stream: AnswerStream) -> None:
        """Raise what it means, unless the answer was all there."""
        match error:
            case ErrorInStream():
                raise self._classified(None, error.body, {}) from error
            case NotAChunk() | SseTooLong() | TooLarge():
                who = self._origin.provider
                raise Unreachable(f"{who} sent a broken stream: {error}") from error
            case _:
                if not stream.finish_reason:
                    raise broken(error, self._origin, self._endpoint.place) from error

    def _end(self, stream: AnswerStream, events: AnswerEvents) -> Sequence[StreamDelta | Notice]:
        """The last deltas, if this was an end at all."""
        if stream.finish_reason in _BROKEN_FINISHES:
            raise Overloaded(f"{self._origin.provider} gave up in mid-answer")
        if not (stream.finish_reason or events.said_done or stream.runaway):
            raise Unreachable(f"{self._origin.provider} stopped in mid-answer")
        last: list[StreamDelta | Notice] = [*stream.close()]
        if stream.runaway:
            last.append(Notice(f"The answer was cut off: {stream.runaway}."))
        return last
