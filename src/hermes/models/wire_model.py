"""A model behind an HTTP API: one request and the events of its answer, for all wire formats."""

import asyncio
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, closing, suppress

import anyio
from msgspec import structs

from hermes.kit.clock import Clock
from hermes.kit.sse import SseReader, SseTooLong
from hermes.models.endpoint import (
    MAX_ERROR_BODY,
    BodyTooLarge,
    Endpoint,
    EndpointSettings,
    NoProgress,
    StreamCoalescer,
    connection_error,
    read_up_to,
)
from hermes.models.error_body import redacted_message
from hermes.models.http_client import HttpResponse, IdleTimeout
from hermes.models.images import ImageUrls
from hermes.models.provider_errors import RequestOrigin, classify_error, url_hint
from hermes.models.providers import ServedModel
from hermes.models.urls import redacted_url
from hermes.models.wire.codec import (
    InvalidChunk,
    StreamDelta,
    StreamError,
    Wire,
    WireStream,
)
from hermes.ports.model import ModelChunk, ModelRequest
from hermes.schema.errors import BadRequest, ModelError, Overloaded, Unreachable
from hermes.schema.events import Notice
from hermes.schema.messages import Assistant, Reasoning

log = logging.getLogger(__name__)

_DONE = b"[DONE]"
_JSON = "application/json"
_MAX_BODY = 32 * 1024 * 1024
_MAX_EVENT = 16 * 1024 * 1024


class AnswerReader:
    """Decodes a response, one network read at a time.

    Comments, empty events and incomplete events do not count as progress: they do not extend the
    wait for the next piece of the answer. A single timer bounds all waits: one for each of the
    thousands of reads would cost more than the reads themselves. `close` removes the answer from
    the coalescer's count.
    """

    def __init__(
        self,
        response: HttpResponse,
        stream: WireStream,
        settings: EndpointSettings,
        coalescer: StreamCoalescer,
    ) -> None:
        self._response = response
        self._stream = stream
        self._settings = settings
        self._max_pause = settings.max_pause
        self._coalescer = coalescer
        self._coalescing: asyncio.Future[None] | None = None
        self._json: list[bytes] | None = [] if response.content_type == _JSON else None
        self._events = SseReader(_MAX_EVENT)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._wait_ends = math.inf
        """When the current wait for data is too long."""
        self._started_at = self._moved_at = self._loop.time()
        self._moved = False
        self._bytes = 0
        self.received_done = False
        self.done = False
        coalescer.answers += 1
        self._counted = True

    async def next(self) -> list[StreamDelta]:
        """Return what the next read adds; raise `TimeoutError` when it takes too long.

        Once the finish reason is known, a timeout ends the stream instead.
        """
        stream, settings, now = self._stream, self._settings, self._loop.time()
        size, finish_reason = stream.size, stream.finish_reason
        if self._moved:
            self._moved_at = now
        pause = settings.grace if finish_reason else self._max_pause
        due = min(self._moved_at + pause, self._started_at + settings.total)
        data = b""
        try:
            # Buffered data is read without a wait, so the timer would not catch it.
            if now >= due:
                raise self._timeout_error()
            if self._coalescer.pause and not finish_reason:
                data = await self._read_coalesced()
            if not data:
                self._wait_ends = min(due, now + settings.idle)
                if self._timer is None or self._timer.when() > self._wait_ends:
                    self._set_timer()
                data = await self._response.readany()
        except TimeoutError:
            if not finish_reason:
                raise
        finally:
            self._wait_ends = math.inf
        deltas = stream.feed(self._batch(data))
        self._moved = stream.size > size or stream.finish_reason != finish_reason
        if stream.ended:
            self.done = self.received_done = True
        return deltas

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._wait_ends, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() >= self._wait_ends:
            self._response.fail(self._timeout_error())
        elif self._wait_ends < math.inf:
            self._set_timer()

    async def _read_coalesced(self) -> bytes:
        """Return what arrived during the coalescing pause; nothing for the first read."""
        response = self._response
        if self._moved_at == self._started_at or response.complete:
            return b""
        # Read first, so that the data is not lost if the connection breaks during the pause.
        data = response.read_nowait()
        self._coalescing = self._coalescer.wait_for_pause()
        response.on_complete = self._end_pause
        await self._coalescing
        return data if response.error else data + response.read_nowait()

    def _end_pause(self) -> None:
        """End the pause when the response is complete."""
        if self._coalescing is not None and not self._coalescing.done():
            self._coalescing.set_result(None)

    def _timeout_error(self) -> TimeoutError:
        now, settings = self._loop.time(), self._settings
        if now >= self._started_at + settings.total:
            return TimeoutError()
        if now >= self._moved_at + self._max_pause:
            return NoProgress()
        return IdleTimeout("no data received")

    def _batch(self, data: bytes) -> list[bytes]:
        self._bytes += len(data)
        if self._bytes > self._settings.max_bytes:
            raise BodyTooLarge(f"more than {self._settings.max_bytes:,} bytes")
        if self._json is not None:
            return self._json_body(self._json, data)
        if data:
            events = self._events.feed(data)
        else:
            self.done = True
            events = self._events.close()
        batch = [event.data for event in events if event.data]
        if _DONE in batch:
            self.done = self.received_done = True
            del batch[batch.index(_DONE) :]
        return batch

    def _json_body(self, pieces: list[bytes], data: bytes) -> list[bytes]:
        """Collect an answer that is not streamed."""
        pieces.append(data)
        if self._bytes > _MAX_BODY:
            raise BodyTooLarge(f"more than {_MAX_BODY:,} bytes")
        self.done = not data
        return [b"".join(pieces)] if self.done else []

    def close(self) -> None:
        if self._counted:
            self._counted = False
            self._coalescer.answers -= 1
        if self._timer is not None:
            self._timer.cancel()


_BROKEN_FINISHES = {"error", "insufficient_system_resource", "network_error", "abort"}
_STREAM_ERRORS = (OSError, StreamError, InvalidChunk, SseTooLong, BodyTooLarge)
"""Errors while an answer is read."""
_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


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
        base_url = endpoint.settings.base_url
        self._path, self._headers = wire.path(base_url), _HEADERS | wire.headers(key, base_url)
        self._origin = RequestOrigin(
            provider=served.provider,
            model=served.model,
            base_url=base_url,
            key_env=served.key_env,
            key=key,
            local=served.local,
        )

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
        return aclosing(self._chunks(request))

    async def _chunks(self, request: ModelRequest) -> AsyncGenerator[ModelChunk]:
        response = await self._respond(request)
        try:
            stream, endpoint = self._wire.stream(), self._endpoint
            reader = AnswerReader(response, stream, endpoint.settings, endpoint.coalescer)
            with closing(reader):
                while not reader.done and not stream.runaway:
                    try:
                        deltas = await reader.next()
                    except _STREAM_ERRORS as error:
                        self._check_stream_error(error, stream)
                        break
                    for delta in deltas:
                        yield delta
                if stream.finish_reason in _BROKEN_FINISHES:
                    raise Overloaded(f"{self.provider} aborted the answer")
                if not (stream.finish_reason or reader.received_done or stream.runaway):
                    raise Unreachable(f"{self.provider} stopped in mid-answer")
                held, answer = stream.finish(self.name, self.provider)
                for delta in held:
                    yield delta
                if stream.runaway:
                    yield Notice(f"The answer was cut off: {stream.runaway}.")
                self._wire.answer_received(request, stream, answer)
                if reader.received_done and not response.complete:
                    # The connection can be reused once the last bytes are read.
                    with anyio.move_on_after(0.1), suppress(OSError):
                        await response.readany()
                yield answer
        finally:
            self._endpoint.client.release(response)

    async def _respond(self, request: ModelRequest) -> HttpResponse:
        """Open the response; retry once without optional parts that the provider rejects."""
        wire, endpoint, is_retry = self._wire, self._endpoint, False
        while True:
            shown = wire.images_in(request.messages)
            images = await self._images.urls(shown) if shown else None
            # The body has no name here, so that it is freed once it is sent, not when the answer
            # ends.
            response = await endpoint.post(
                self._path, wire.body_pieces(request, images), self._headers, self._origin
            )
            if response.status == 200 and response.content_type != "text/html":
                return response
            try:
                error = await self._error(response)
            finally:
                endpoint.client.release(response)
            if is_retry or not isinstance(error, BadRequest):
                raise error
            request, is_retry = self._reduced(request, error), True

    def _reduced(self, request: ModelRequest, error: BadRequest) -> ModelRequest:
        """Return the request without what the provider rejects; raises if that is unknown."""
        if is_reasoning_rejection(str(error)) and has_reasoning(request):
            request = without_reasoning(request)
        elif not self._wire.drop_rejected(str(error)):
            raise error
        log.warning("retrying %s with a reduced request: %s", self._origin.provider, error)
        return request

    async def _error(self, response: HttpResponse) -> ModelError:
        """Return the error of a response that is not an answer."""
        address, status = self._origin.address, response.status
        if status == 200:
            what = f"{address} returned a web page"
            return BadRequest(what, hint=url_hint(self._origin))
        if 300 <= status < 400:
            target = redacted_url(response.headers.get("location", "another address"))
            what = f"{address} redirects to {redacted_message(target)}"
            return BadRequest(what, hint=url_hint(self._origin))
        body = await read_up_to(response, MAX_ERROR_BODY, self._endpoint.settings.idle)
        return self._classified(status, body, response.headers)

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
