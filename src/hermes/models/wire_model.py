"""A model behind an HTTP API: one driver for all wire formats."""

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing
from typing import Any

from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.sse import SseTooLong
from hermes.models.answer_events import AnswerEvents
from hermes.models.endpoint import (
    MAX_ERROR_BODY,
    BodyTooLarge,
    Endpoint,
    connection_error,
    read_up_to,
)
from hermes.models.error_body import redacted_message
from hermes.models.http_response import HttpResponse
from hermes.models.images import ImageUrls
from hermes.models.provider_errors import RequestOrigin, classify_error, url_hint
from hermes.models.providers import ModelProfile
from hermes.models.urls import redacted_url
from hermes.models.wire.stream import InvalidChunk, StreamDelta, StreamError, Wire, WireStream
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.schema.errors import BadRequest, ModelError, Overloaded, Unreachable
from hermes.schema.events import Notice
from hermes.schema.messages import Assistant, Reasoning

log = logging.getLogger(__name__)

_BROKEN_FINISHES = {"error", "insufficient_system_resource", "network_error", "abort"}
_STREAM_ERRORS = (OSError, StreamError, InvalidChunk, SseTooLong, BodyTooLarge)
"""Errors while an answer is read."""
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


class ServedModel(Struct, frozen=True, kw_only=True):
    """A model at a provider. `cache_ttl` is for wires with explicit caching."""

    model: str
    provider: str
    window: int
    profile: ModelProfile = ModelProfile()
    max_output: int | None = None
    extra: Mapping[str, Any] = {}
    key_env: str = ""
    local: bool = False
    cache_ttl: str = "5m"


class WireModel:
    """Implements `ports.model.Model`. The caller owns the endpoint."""

    def __init__(
        self,
        endpoint: Endpoint,
        served: ServedModel,
        images: ImageUrls,
        clock: Clock,
        wire: Wire,
        key: str = "",
    ) -> None:
        self.name, self.provider, self.window = served.model, served.provider, served.window
        self._endpoint = endpoint
        self._served = served
        self._images = images
        self._clock = clock
        self._wire = wire
        self._path = wire.path(endpoint.settings.base_url)
        self._origin = RequestOrigin(
            provider=served.provider,
            model=served.model,
            base_url=endpoint.settings.base_url,
            key_env=served.key_env,
            key=key,
            local=served.local,
        )

    def with_key(self, key: str) -> "WireModel":
        """Return the same model with another key, sharing the connections."""
        return WireModel(self._endpoint, self._served, self._images, self._clock, self._wire, key)

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
        return aclosing(self._chunks(request))

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[ModelChunk]:
        response = await self._respond(request)
        try:
            stream = self._wire.stream()
            endpoint = self._endpoint
            reader = AnswerEvents(response, endpoint.settings, endpoint.coalescer)
            with closing(reader) as events:
                while not events.done and not stream.runaway:
                    before = stream.size, stream.finish_reason
                    try:
                        deltas = stream.feed(
                            await events.next(finishing=bool(stream.finish_reason))
                        )
                    except _STREAM_ERRORS as error:
                        self._check_stream_error(error, stream)
                        break
                    for delta in deltas:
                        yield delta
                    moved = (stream.size, stream.finish_reason) != before
                    events.record_progress(moved=moved, ended=stream.ended)
                for delta in self._end(stream, events):
                    yield delta
                answer = stream.answer(self._served.model, self._served.provider)
                self._wire.answer_received(request, stream, answer)
                await events.drain()
                yield answer
        finally:
            self._endpoint.client.release(response)

    async def _respond(self, request: ModelRequest) -> HttpResponse:
        """Open the response; retry once without optional parts that the provider rejects."""
        headers = _HEADERS | self._wire.headers(self._origin.key, self._origin.base_url)
        is_retry = False
        while True:
            # The body has no name here, so that it is freed once it is sent, not when the answer
            # ends.
            response = await self._endpoint.post(
                self._path, await self._body(request), headers, self._origin
            )
            try:
                await self._check(response)
            except BaseException as error:
                self._endpoint.client.release(response)
                if is_retry or not isinstance(error, BadRequest):
                    raise
                request, is_retry = self._reduced(request, error), True
            else:
                return response

    def _reduced(self, request: ModelRequest, error: BadRequest) -> ModelRequest:
        """Return the request without what the provider rejects; raises if that is unknown."""
        if is_reasoning_rejection(str(error)) and has_reasoning(request):
            request = without_reasoning(request)
        elif not self._wire.drop_rejected(str(error)):
            raise error
        log.warning("retrying %s with a reduced request: %s", self._origin.provider, error)
        return request

    async def _body(self, request: ModelRequest) -> Sequence[bytes]:
        shown = self._wire.images_in(request.messages)
        return self._wire.body_pieces(request, await self._images.urls(shown) if shown else None)

    async def _check(self, response: HttpResponse) -> None:
        """Raise the provider's error, if it returned one."""
        if response.status == 200:
            if response.content_type == "text/html":
                what = f"{self._origin.address} returned a web page"
                raise BadRequest(what, hint=url_hint(self._origin))
            return
        if 300 <= response.status < 400:
            target = redacted_url(response.headers.get("location", "another address"))
            raise BadRequest(
                f"{self._origin.address} redirects to {redacted_message(target)}",
                hint=url_hint(self._origin),
            )
        body = await read_up_to(response, MAX_ERROR_BODY, self._endpoint.settings.idle)
        raise self._classified(response.status, body, response.headers)

    def _classified(
        self, status: int | None, body: bytes, headers: Mapping[str, str]
    ) -> ModelError:
        return classify_error(status, body, headers, self._origin, self._clock.now())

    def _check_stream_error(self, error: Exception, stream: WireStream) -> None:
        """Raise the matching error, unless the answer was complete already."""
        match error:
            case StreamError():
                raise self._classified(None, error.body, {}) from error
            case InvalidChunk() | SseTooLong() | BodyTooLarge():
                provider = self._origin.provider
                raise Unreachable(f"{provider} sent an invalid stream: {error}") from error
            case _:
                if not stream.finish_reason:
                    raise connection_error(error, self._origin, self._endpoint.settings) from error

    def _end(self, stream: WireStream, events: AnswerEvents) -> Sequence[StreamDelta | Notice]:
        """Return the last deltas; raise if the answer is incomplete."""
        if stream.finish_reason in _BROKEN_FINISHES:
            raise Overloaded(f"{self._origin.provider} aborted the answer")
        if not (stream.finish_reason or events.received_done or stream.runaway):
            raise Unreachable(f"{self._origin.provider} stopped in mid-answer")
        last: list[StreamDelta | Notice] = [*stream.close()]
        if stream.runaway:
            last.append(Notice(f"The answer was cut off: {stream.runaway}."))
        return last


_REASONING_REJECTION = re.compile(
    r"signature|encrypted[ _]content|thinking. block|thinking blocks?|required following item"
    r"|item with id '?rs_",
    re.IGNORECASE,
)


def is_reasoning_rejection(message: str) -> bool:
    """Return whether the provider rejected a reasoning signature, e.g. an expired one."""
    return _REASONING_REJECTION.search(message) is not None


def has_reasoning(request: ModelRequest) -> bool:
    return any(
        isinstance(part, Reasoning)
        for message in request.messages
        if isinstance(message, Assistant)
        for part in message.parts
    )


def without_reasoning(request: ModelRequest) -> ModelRequest:
    messages = list(request.messages)
    for index, message in enumerate(messages):
        if isinstance(message, Assistant):
            parts = tuple(part for part in message.parts if not isinstance(part, Reasoning))
            messages[index] = structs.replace(message, parts=parts)
    return structs.replace(request, messages=messages)
