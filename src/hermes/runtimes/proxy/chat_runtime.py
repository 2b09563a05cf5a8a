"""Run a turn on another gateway as a streamed chat completion."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.kit.sse import SseTooLong
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.chat_protocol import (
    MAX_EVENT_BYTES,
    AnswerTooLong,
    ChatRequest,
    ChatStreamMapper,
    InvalidStream,
    RemoteError,
    chat_request,
    remote_session_id,
)
from hermes.runtimes.proxy.errors import (
    MAX_ERROR_BODY,
    connection_error,
    request_refused,
    stream_broken,
    stream_error,
)
from hermes.schema.errors import ModelError, PolicyRefused
from hermes.schema.events import MessageAdded, Outcome, TextDelta
from hermes.schema.messages import Stop

CHAT_PATH = "/v1/chat/completions"
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)


class RemoteGateway(Struct, frozen=True, kw_only=True):
    """The address and timeouts of the other gateway. A turn there has no time limit by default.

    `read` bounds the time without data, `connect` the wait for a connection, and `grace` the wait
    for what may follow a complete answer, or for a run to stop. For runs: a connection without
    data for `alive` seconds is dead, the link may be down for `patience`, and the whole turn may
    take `total`, unless that is 0.
    """

    url: str
    key: str = ""
    connect: float = 30.0
    read: float = 1800.0
    grace: float = 5.0
    alive: float = 90.0
    patience: float = 120.0
    total: float = 0.0
    one_event: int = MAX_EVENT_BYTES


class ChatRuntime:
    """Implements `ports.runtime.Runtime`. Each turn has its own connection."""

    name = "The remote gateway"

    def __init__(self, remote: RemoteGateway) -> None:
        self._remote = remote

    async def run(self, runtime_request: RuntimeRequest, tell: EmitRuntimeEvent) -> TurnEnd:
        mapper = ChatStreamMapper(self._remote.one_event)
        try:
            await self._listen(runtime_request, mapper, tell)
        except BaseException:
            if mapper.text.strip():
                await tell(MessageAdded(mapper.partial()))
            raise
        answer = mapper.answer()
        await tell(MessageAdded(answer))
        return _turn_end(answer.stop)

    async def close(self) -> None:
        """Do nothing: there are no connections between turns."""

    async def _listen(
        self, runtime_request: RuntimeRequest, mapper: ChatStreamMapper, tell: EmitRuntimeEvent
    ) -> None:
        """Read until the remote gateway marks the answer as complete. Raises `ModelError`."""
        far = self._remote
        question = chat_request(runtime_request)
        async with self._post(question, self._headers(runtime_request)) as response:
            if response.status != 200:
                raise request_refused(
                    response.status, await _read_error_body(response, far.connect), far.key
                )
            async with aclosing(_read_chunks(response)) as pieces:
                try:
                    while not mapper.done and (piece := await self._next(pieces, mapper)):
                        if text := mapper.feed(piece):
                            await tell(TextDelta(text))
                except _ReadFailed as error:
                    if not mapper.is_complete:
                        raise connection_error(error.cause, far.read, far.key) from error
                except RemoteError as error:
                    raise stream_error(error.body, far.key) from error
                except (InvalidStream, SseTooLong, AnswerTooLong) as error:
                    raise stream_broken(
                        f"the remote gateway sent an invalid stream: {error}"
                    ) from error
        _check_complete(mapper)

    async def _next(self, pieces: AsyncGenerator[bytes], mapper: ChatStreamMapper) -> bytes:
        """Return empty bytes at the end; after a complete answer, wait only for `grace`."""
        with anyio.move_on_after(self._remote.grace if mapper.is_complete else None):
            return await anext(pieces, b"")
        return b""

    @asynccontextmanager
    async def _post(
        self, question: ChatRequest, headers: dict[str, str]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        far = self._remote
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=far.connect, sock_read=far.read)
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
                request = session.post(
                    far.url + CHAT_PATH,
                    json=msgspec.to_builtins(question),
                    headers=headers,
                    allow_redirects=False,
                )
                response = await stack.enter_async_context(request)
            except (*_NETWORK_ERRORS, ValueError) as error:
                raise connection_error(error, far.read, far.key) from error
            yield response

    def _headers(self, runtime_request: RuntimeRequest) -> dict[str, str]:
        # No idempotency key: with one, a Hermes gateway would not stop when we disconnect.
        headers = {
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "X-Hermes-Session-Id": remote_session_id(runtime_request.scope),
        }
        if self._remote.key:
            headers["Authorization"] = f"Bearer {self._remote.key}"
        return headers


def _check_complete(mapper: ChatStreamMapper) -> None:
    if not mapper.is_complete:
        when = "after a part of the answer" if mapper.text else "before an answer"
        raise stream_broken(f"the stream of the remote gateway ended {when}")
    if mapper.has_failed:
        raise stream_broken("the remote gateway aborted the answer")
    if not mapper.text.strip():
        raise ModelError("⚠️ Proxy error: the answer is empty.", hint="Try again.")


def _turn_end(stop: Stop) -> TurnEnd:
    if stop is Stop.REFUSED:
        error = PolicyRefused(
            "The remote gateway declined to answer.", hint="Rephrase the message."
        )
        return TurnEnd(Outcome.FAILED, error.sentence, error.code)
    if stop is Stop.LENGTH:
        return TurnEnd(Outcome.EXHAUSTED, "The answer was cut off at its limit.", "truncated")
    return TurnEnd(Outcome.DONE)


class _ReadFailed(Exception):
    """The connection broke while the answer was read."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def _read_chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except _NETWORK_ERRORS as error:
        raise _ReadFailed(error) from error


async def _read_error_body(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """Read an error body within these limits, ignoring connection errors."""
    body = b""
    with anyio.move_on_after(seconds), suppress(_ReadFailed):
        async with aclosing(_read_chunks(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= MAX_ERROR_BODY:
                    break
    return body[:MAX_ERROR_BODY]
