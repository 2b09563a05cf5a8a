"""A model behind an HTTP API: one request and the events of its answer, for all wire formats."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, closing, suppress

import anyio
from msgspec import Struct, structs

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


class _ReadDeadline(Struct):
    """Bounds consecutive waits with a single timer.

    A timer for each of a stream's thousands of reads costs more than the reads themselves: when
    this one fires, it checks whether the current wait has expired.
    """

    _loop: asyncio.AbstractEventLoop
    deadline: float = 0.0
    """Of the next `with` block."""
    _timer: asyncio.TimerHandle | None = None
    _task: asyncio.Task[object] | None = None
    _cancelled_before: int = 0
    _expired: bool = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream must be read within a task")
        self._task, self._expired = task, False
        self._cancelled_before = task.cancelling()
        if self._timer is None or self._timer.when() > self.deadline:
            self._arm()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        task, self._task = self._task, None
        if not self._expired or task is None or not isinstance(error, asyncio.CancelledError):
            return False
        return task.uncancel() <= self._cancelled_before

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self.deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self.deadline:
            self._arm()
            return
        self._expired = True
        self._task.cancel()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class AnswerEvents:
    """Yields the events of a response, one network read at a time.

    Comments, empty events and incomplete events do not count as progress: they do not extend the
    wait for the next piece of the answer. `close` removes the answer from the coalescer's count.
    """

    def __init__(
        self, response: HttpResponse, settings: EndpointSettings, coalescer: StreamCoalescer
    ) -> None:
        self._settings = settings
        self._coalescer = coalescer
        self._response = response
        self._coalescing: asyncio.Future[None] | None = None
        self._json: list[bytes] | None = [] if response.content_type == _JSON else None
        self._reader = SseReader(_MAX_EVENT)
        self._loop = asyncio.get_running_loop()
        self._watch = _ReadDeadline(self._loop)
        self._started_at = self._moved_at = self._loop.time()
        self._moved = False
        self._bytes = 0
        self.received_done = False
        self.done = False
        coalescer.answers += 1
        self._counted = True

    def record_progress(self, *, moved: bool, ended: bool) -> None:
        """Report progress, which restarts the wait, or the end of the answer."""
        self._moved = moved
        if ended:
            self.done = self.received_done = True

    async def next(self, *, finishing: bool) -> list[bytes]:
        """Return the next events; raise `TimeoutError` when they take too long.

        While `finishing`, a timeout ends the stream instead.
        """
        now = self._loop.time()
        if self._moved:
            self._moved_at = now
        settings = self._settings
        pause = settings.grace if finishing else settings.max_pause
        due = min(self._moved_at + pause, self._started_at + settings.total)
        # Data that is already buffered is read without a wait, so the timer would not catch it.
        data: bytes | None = None
        if now < due:
            if self._coalescer.pause and not finishing:
                data = await self._read_coalesced() or None
            if data is None:
                self._watch.deadline = min(due, now + settings.idle)
                with self._watch:
                    data = await self._response.readany()
        if data is None and not finishing:
            raise self._timeout_error()
        return self._batch(data or b"")

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
        if now >= self._moved_at + settings.max_pause:
            return NoProgress()
        return IdleTimeout("no data received")

    def _batch(self, data: bytes) -> list[bytes]:
        self._bytes += len(data)
        if self._bytes > self._settings.max_bytes:
            raise BodyTooLarge(f"more than {self._settings.max_bytes:,} bytes")
        if self._json is not None:
            return self._json_body(self._json, data)
        if data:
            events = self._reader.feed(data)
        else:
            self.done = True
            events = self._reader.close()
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
        self._watch.close()

    async def drain(self) -> None:
        """Read the last bytes of a finished response, so that its connection can be reused."""
        if self.received_done and not self._response.complete:
            with anyio.move_on_after(0.1), suppress(OSError):
                await self._response.readany()


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
        self._path = wire.path(endpoint.settings.base_url)
        self._origin = RequestOrigin(
            provider=served.provider,
            model=served.model,
            base_url=endpoint.settings.base_url,
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
