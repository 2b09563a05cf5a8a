"""A fake remote gateway on a real socket that answers with planned bytes."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.runtimes.proxy.chat_runtime import ChatRuntime, RemoteGateway
from hermes.schema.messages import Message
from support.turns import SCOPE, EventRecorder, user_message

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
CHUNKED_HEAD = STREAM_HEAD.replace(b"connection: close", b"transfer-encoding: chunked")
FINISH_EVENT = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
DONE_EVENT = b"data: [DONE]\n\n"
CAPABILITIES_PATH = "/v1/capabilities"

Respond = Callable[[SocketStream], Awaitable[None]]


class RecordedCall(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


def delta_events(*words: str) -> bytes:
    """Return the events of these words, without an end event."""
    chunks = [{"choices": [{"delta": {"content": word}}]} for word in words]
    return b"".join(b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chunks)


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def full_answer(*words: str) -> bytes:
    return STREAM_HEAD + delta_events(*words) + FINISH_EVENT + DONE_EVENT


def error_response(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


class FakeRemoteGateway:
    """Plays its plans in the order of requests, repeating the last one."""

    def __init__(self, *plays: bytes | Respond) -> None:
        self.asked: list[RecordedCall] = []
        self.left = anyio.Event()
        """Set when somebody hung up on us."""
        self.url = ""
        self._plays = list(plays)

    async def serve(self, stream: SocketStream) -> None:
        async with stream:
            request = await _request(stream)
            if request.path == CAPABILITIES_PATH:
                # Like most servers, it does not know this endpoint.
                await stream.send(error_response(404, b"nothing here"))
                return
            self.asked.append(request)
            play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
            try:
                await (stream.send(play) if isinstance(play, bytes) else play(stream))
            except (anyio.BrokenResourceError, anyio.EndOfStream):
                self.left.set()


async def _request(stream: SocketStream) -> RecordedCall:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += await stream.receive()
    return RecordedCall(first.split()[1], headers, msgspec.json.decode(body) if body else {})


def respond_then_hang(*pieces: bytes) -> Respond:
    """Send this, then nothing until the client disconnects."""

    async def play(stream: SocketStream) -> None:
        for piece in pieces:
            await stream.send(piece)
        await stream.receive()

    return play


@asynccontextmanager
async def fake_remote_gateway(*plays: bytes | Respond) -> AsyncGenerator[FakeRemoteGateway]:
    far = FakeRemoteGateway(*plays)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no database here
    far.url = f"http://127.0.0.1:{port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, far.serve)
        yield far
        group.cancel_scope.cancel()


def proxy_plan(url: str, *history: Message, system: str = "", **far: Any) -> RuntimePlan:
    runtime = ChatRuntime(RemoteGateway(url=url, **far))
    return RuntimePlan(scope=SCOPE, runtime=runtime, system=system, history=history)


async def run_proxy_turn(
    url: str, *history: Message, questions: Sequence[str] = ("hello",), system: str = "", **far: Any
) -> EventRecorder:
    """Run one turn to its end."""
    ear = EventRecorder()
    plan = proxy_plan(url, *history, system=system, **far)
    with anyio.fail_after(60):
        outcome = await run_turn(plan, [user_message(text) for text in questions], ear)
    assert ear.ended.outcome is outcome
    return ear
