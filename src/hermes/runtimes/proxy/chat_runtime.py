"""Run a turn on another gateway as a streamed chat completion."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

import aiohttp
import anyio
import msgspec
from msgspec import Struct

from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.sse import SseReader, SseTooLong
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.attachments import part_text
from hermes.runtimes.proxy.errors import (
    MAX_ERROR_BODY,
    LinkBroken,
    connection_error,
    nothing_to_answer,
    request_rejected,
    stream_broken,
    stream_error,
    stream_invalid,
)
from hermes.schema.errors import ModelError, PolicyRefused
from hermes.schema.events import MessageAdded, Outcome, TextDelta
from hermes.schema.messages import Assistant, Message, Stop, Text, Trust, Usage, User
from hermes.schema.scope import Role, Scope

MODEL = "hermes-agent"
PROVIDER = "proxy"
MAX_EVENT_BYTES = 4 * 1024 * 1024
"""Bytes of one event, so that a stream without line breaks cannot fill the memory."""
MAX_ANSWER = 4_000_000
"""Characters after which an answer is cut off."""

CHAT_PATH = "/v1/chat/completions"
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
_STOPS = {"length": Stop.LENGTH, "content_filter": Stop.REFUSED}
_FAILED_REASONS = frozenset({"error", "abort", "cancelled"})


class RemoteGateway(Struct, frozen=True, kw_only=True):
    """The address and timeouts of the other gateway. A turn there has no time limit by default.

    `read` bounds the time without data, `connect` the wait for a connection, and `grace` the wait
    for what may follow a complete answer, or for a run to stop. For runs: a connection without
    data for `silence_timeout` seconds is dead, the link may be down for `reconnect_timeout`, and
    the whole turn may take `total`, unless that is 0.
    """

    url: str
    key: str = ""
    connect: float = 30.0
    read: float = 1800.0
    grace: float = 5.0
    silence_timeout: float = 90.0
    reconnect_timeout: float = 120.0
    total: float = 0.0
    max_event_bytes: int = MAX_EVENT_BYTES


class ChatMessage(Struct, frozen=True):
    role: str
    content: str


class ChatRequest(Struct, frozen=True):
    messages: Sequence[ChatMessage]
    model: str = MODEL
    stream: bool = True


def remote_session_id(scope: Scope) -> str:
    """Return the remote session id. A remote session has one role, a shared chat here several."""
    return scope.session if scope.role is Role.OWNER else f"{scope.session}.{scope.role.value}"


def chat_request(runtime_request: RuntimeRequest) -> ChatRequest:
    """Send the text of users and the agent only: tools run on the remote side."""
    messages = [
        one for message in turn_messages(runtime_request) if (one := _chat_message(message))
    ]
    if not messages or messages[-1].role != "user":
        raise nothing_to_answer()
    opening = [ChatMessage("system", runtime_request.system)] if runtime_request.system else []
    return ChatRequest([*opening, *messages])


def turn_messages(runtime_request: RuntimeRequest) -> Sequence[Message]:
    """Return the messages without internal notes, unless only such a note asks for an answer."""
    messages = [message for message in runtime_request.messages if not is_program_note(message)]
    asks = bool(messages) and isinstance(messages[-1], User)
    return messages if asks else runtime_request.messages


def is_question(message: Message) -> bool:
    """Return whether this is a message that needs an answer."""
    return isinstance(message, User) and not is_program_note(message)


def is_program_note(message: Message) -> bool:
    """Return whether this is an internal note for our own agent loop."""
    return isinstance(message, User) and message.trust is Trust.PROGRAM


def _chat_message(message: Message) -> ChatMessage | None:
    if isinstance(message, User):
        text, role = "\n".join(map(part_text, message.parts)), "user"
    elif isinstance(message, Assistant):
        text, role = message.text, "assistant"
    else:
        return None
    return ChatMessage(role, text) if text.strip() else None


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Tokens(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: object = None


class InvalidStream(ValueError):
    """The data is not a stream of chat completion chunks."""


class AnswerTooLong(ValueError):
    """The answer exceeds the size limit."""


class RemoteError(Exception):
    """The remote gateway sent an error instead of a chunk."""

    def __init__(self, body: bytes) -> None:
        super().__init__("error in the stream")
        self.body = body


class AnswerText:
    """The text of an answer so far, up to a limit."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._size = 0

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def _add(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ANSWER:
            raise AnswerTooLong(f"the answer is longer than {MAX_ANSWER:,} characters")
        self._texts.append(text)


class ChatStreamMapper(AnswerText):
    """Decodes one streamed answer, and keeps what has arrived so far."""

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        super().__init__()
        self._reader = SseReader(limit)
        self._decoder = msgspec.json.Decoder(_Chunk)
        self._finish = ""
        self._usage = Usage()
        self.done = False

    @property
    def is_complete(self) -> bool:
        """Whether the remote gateway marked the answer as complete."""
        return self.done or bool(self._finish)

    @property
    def has_failed(self) -> bool:
        """Whether the answer ended with an error."""
        return self._finish in _FAILED_REASONS

    def feed(self, data: bytes) -> str:
        """Return the text completed by these bytes."""
        before = len(self._texts)
        for event in self._reader.feed(data):
            if event.event in {"", "message"} and event.data and not self.done:
                self._take(event.data)
        return "".join(self._texts[before:])

    def answer(self, *, interrupted: bool = False) -> Assistant:
        """Return the answer, or what has arrived of it before an interruption."""
        stop = Stop.CANCELLED if interrupted else _STOPS.get(self._finish, Stop.END)
        return Assistant(new_id("msg"), (Text(self.text),), stop, self._usage, MODEL, PROVIDER)

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            chunk = self._decoder.decode(data)
        except JSON_ERRORS as error:
            raise InvalidStream("an event is not a chat completion chunk") from error
        if chunk.error:
            raise RemoteError(data)
        if chunk.usage is not None:
            tokens = chunk.usage
            self._usage = Usage(tokens.prompt_tokens or 0, tokens.completion_tokens or 0)
        for choice in (chunk.choices or ())[:1]:
            self._finish = choice.finish_reason or self._finish
            if choice.delta is not None and choice.delta.content:
                self._add(choice.delta.content)


class ChatRuntime:
    """Implements `ports.runtime.Runtime`. Each turn has its own connection."""

    name = "The remote gateway"

    def __init__(self, remote: RemoteGateway) -> None:
        self._remote = remote

    async def run(self, runtime_request: RuntimeRequest, emit: EmitRuntimeEvent) -> TurnEnd:
        mapper = ChatStreamMapper(self._remote.max_event_bytes)
        try:
            await self._listen(runtime_request, mapper, emit)
        except BaseException:
            if mapper.text.strip():
                await emit(MessageAdded(mapper.answer(interrupted=True)))
            raise
        answer = mapper.answer()
        await emit(MessageAdded(answer))
        return _turn_end(answer.stop)

    async def close(self) -> None:
        """Do nothing: there are no connections between turns."""

    async def _listen(
        self, runtime_request: RuntimeRequest, mapper: ChatStreamMapper, emit: EmitRuntimeEvent
    ) -> None:
        """Read until the remote gateway marks the answer as complete. Raises `ModelError`."""
        remote = self._remote
        question = chat_request(runtime_request)
        async with self._post(question, self._headers(runtime_request)) as response:
            if response.status != 200:
                body = await _read_error_body(response, remote.connect)
                raise request_rejected(response.status, body, remote.key)
            async with aclosing(_read_chunks(response)) as pieces:
                try:
                    while not mapper.done and (piece := await self._next(pieces, mapper)):
                        if text := mapper.feed(piece):
                            await emit(TextDelta(text))
                except LinkBroken as error:
                    if not mapper.is_complete:
                        raise connection_error(error.cause, remote.read, remote.key) from error
                except RemoteError as error:
                    raise stream_error(error.body, remote.key) from error
                except (InvalidStream, SseTooLong, AnswerTooLong) as error:
                    raise stream_invalid(error) from error
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
        remote = self._remote
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=remote.connect, sock_read=remote.read
        )
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
                request = session.post(
                    remote.url + CHAT_PATH,
                    json=msgspec.to_builtins(question),
                    headers=headers,
                    allow_redirects=False,
                )
                response = await stack.enter_async_context(request)
            except (*_NETWORK_ERRORS, ValueError) as error:
                raise connection_error(error, remote.read, remote.key) from error
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
        raise stream_broken(f"the remote gateway's stream ended {when}")
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


async def _read_chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    try:
        async for piece in response.content.iter_any():
            yield piece
    except _NETWORK_ERRORS as error:
        raise LinkBroken(error) from error


async def _read_error_body(response: aiohttp.ClientResponse, seconds: float) -> bytes:
    """Read an error body within these limits, ignoring connection errors."""
    body = b""
    with anyio.move_on_after(seconds), suppress(LinkBroken):
        async with aclosing(_read_chunks(response)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= MAX_ERROR_BODY:
                    break
    return body[:MAX_ERROR_BODY]
