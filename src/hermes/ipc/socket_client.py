"""The client side of the socket: blocking frames in and out, without an event loop."""

import os
import select
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn, TypeVar

from hermes import __version__
from hermes.ipc.client import (
    AgentClient,
    ConversationOptions,
    EventDisplay,
    GatewayGone,
    RequestNotReceived,
    ShowEvent,
    UsageReport,
    UserInput,
    error_from_info,
)
from hermes.ipc.protocol import (
    MAX_FRAME,
    Accepted,
    AnswerQuestion,
    CheckNews,
    ClientFrame,
    CommandReplied,
    ConversationOpened,
    EventFrame,
    FirstFrame,
    FrameBuffer,
    FrameDecoder,
    GetHistory,
    GetUsage,
    Hello,
    HistoryResult,
    Interrupt,
    NewsResult,
    Refused,
    RequestFailed,
    RunCommand,
    ServerFrame,
    StartTurn,
    Steer,
    TurnEnded,
    UsageResult,
    Wake,
    WakeAccepted,
    encode_frame,
    env_fingerprint,
)
from hermes.ipc.unix_socket import connect_socket, peer_uid
from hermes.schema.errors import HermesError
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory

CONNECT_TIMEOUT = 2.0
"""Seconds after which a gateway that does not accept counts as not running."""
_READ_SIZE = 256 * 1024
T = TypeVar("T")
_INTERRUPT = encode_frame(Interrupt())
NEWS_TIMEOUT = 0.1
"""Seconds to wait for the answer to a check for new messages."""
HANDSHAKE_TIMEOUT = 5.0
"""Seconds for the gateway to accept or reject a client."""


class SocketConnection:
    """One connection. `interrupt` may be called at any moment, even while a frame is sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameBuffer(MAX_FRAME)
        self._reader = FrameDecoder[ServerFrame](ServerFrame)
        self._sending = Lock()
        self._interrupted = False

    def send(self, frame: FirstFrame | ClientFrame) -> None:
        """Raises `UnicodeEncodeError` for invalid text, before anything is sent."""
        data = encode_frame(frame)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise _gateway_gone(RequestNotReceived) from error
        self._send_interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        self._send_interrupt()

    def receive(self) -> ServerFrame:
        while (frame := self._frames.take()) is None:
            try:
                data = self._connection.recv(_READ_SIZE)
            except ConnectionResetError as error:
                # A reset means that the gateway has not read the last request.
                raise _gateway_gone(RequestNotReceived) from error
            except OSError as error:
                raise _gateway_gone() from error
            if not data:
                raise _gateway_gone()
            self._frames.feed(data)
        return self._reader.decode(frame)

    def ready(self, seconds: float) -> bool:
        """Whether data arrived, or the connection was closed, within the time."""
        return bool(select.select([self._connection], [], [], seconds)[0])

    def set_timeout(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def _send_interrupt(self) -> None:
        """Send a pending interrupt; the holder of the lock checks again, so that none is lost."""
        while self._interrupted and self._sending.acquire(blocking=False):
            try:
                self._interrupted = False
                # If it cannot be sent, the lost connection is noticed anyway.
                with suppress(OSError):
                    self._connection.sendall(_INTERRUPT)
            finally:
                self._sending.release()


@contextmanager
def open_socket(folder: Path) -> Generator[SocketConnection | None]:
    """Connect to the gateway of this home; yield None if none of this user is listening."""
    try:
        connection = connect_socket(folder, CONNECT_TIMEOUT)
    except OSError:
        yield None
        return
    with connection:
        yield SocketConnection(connection) if peer_uid(connection) == os.getuid() else None


def _gateway_gone(kind: type[GatewayGone] = GatewayGone) -> GatewayGone:
    return kind(
        "The gateway closed the connection.",
        hint=(
            "The conversation is saved (hermes sessions list); to check the gateway: "
            "hermes gateway status"
        ),
    )


class SocketClient:
    def __init__(self, connection: SocketConnection, opened: ConversationOpened) -> None:
        self._connection = connection
        self.greeting: Greeting = opened.greeting
        self.state: ConversationState = opened.state
        self.unfinished_jobs = 0
        self._checking_news = False

    def submit(self, user_input: UserInput, show: ShowEvent) -> Outcome:
        display = EventDisplay(show, self.interrupt)
        self._send(StartTurn(user_input))
        while isinstance(answer := self._connection.receive(), EventFrame):
            display.on_event(answer.event)
        if not isinstance(answer, TurnEnded):
            self._fail(answer)
        self.state = answer.state
        if display.error is not None:
            raise display.error
        return answer.outcome

    def answer(self, question: str, text: str) -> None:
        self._connection.send(AnswerQuestion(question, text))

    def steer(self, message_id: str, text: str) -> None:
        self._connection.send(Steer(message_id, text))

    def has_news(self) -> bool:
        """Check for news while the user is typing; a late answer is read at the next check."""
        if not self._checking_news:
            self._connection.send(CheckNews())
            self._checking_news = True
        return self._connection.ready(NEWS_TIMEOUT) and self._read_news()

    def _read_news(self) -> bool:
        answer = self._connection.receive()
        self._checking_news = False
        if not isinstance(answer, NewsResult):
            self._fail(answer)
        self.state = answer.state or self.state
        return answer.news

    def _send(self, request: ClientFrame) -> None:
        """Send a request after the answer to a pending news check has been read."""
        if self._checking_news:
            try:
                self._read_news()
            except GatewayGone as error:
                raise RequestNotReceived(str(error), hint=error.hint) from error
        self._connection.send(request)

    def _request(self, request: ClientFrame, kind: type[T]) -> T:
        self._send(request)
        answer = self._connection.receive()
        return answer if isinstance(answer, kind) else self._fail(answer)

    def recent_history(self) -> RecentHistory:
        return self._request(GetHistory(), HistoryResult).past

    def command(self, line: str) -> LineReply:
        answer = self._request(RunCommand(line), CommandReplied)
        self.state = answer.state
        return answer.reply

    def usage_report(self, ended: RunEnded | None) -> UsageReport:
        return self._request(GetUsage(ended), UsageResult).report

    def interrupt(self) -> None:
        self._connection.interrupt()

    def _fail(self, answer: ServerFrame) -> NoReturn:
        if isinstance(answer, RequestFailed):
            self.state = answer.state or self.state
        raise _failure(answer)


@contextmanager
def open_socket_client(
    folder: Path,
    env: Mapping[str, str],
    start: ConversationOptions,
    on_refused: Callable[[str], object] = lambda reason: None,
) -> Generator[AgentClient | None]:
    """Yield None if no gateway is running, or if it is not compatible.

    `on_refused` is then called with the reason.
    """
    hello = Hello(version=__version__, marks=env_fingerprint(env), start=start)
    with open_socket(folder) as connection:
        if connection is None or not _is_accepted(connection, hello, on_refused):
            yield None
            return
        answer = connection.receive()
        if not isinstance(answer, ConversationOpened):
            raise _failure(answer)
        yield SocketClient(connection, answer)


def _is_accepted(
    connection: SocketConnection, hello: Hello, on_refused: Callable[[str], object]
) -> bool:
    connection.set_timeout(HANDSHAKE_TIMEOUT)
    try:
        connection.send(hello)
        answer = connection.receive()
    except (HermesError, UnicodeEncodeError):
        return False
    connection.set_timeout(None)
    if isinstance(answer, Refused):
        on_refused(answer.reason)
    return isinstance(answer, Accepted)


def wake_gateway(folder: Path) -> bool:
    """Tell the gateway of this home that there is work; return False if none is running."""
    with open_socket(folder) as connection:
        if connection is None:
            return False
        connection.set_timeout(HANDSHAKE_TIMEOUT)
        try:
            connection.send(Wake())
            return isinstance(connection.receive(), WakeAccepted)
        except HermesError:
            return False


def _failure(answer: ServerFrame) -> HermesError:
    if isinstance(answer, RequestFailed):
        return error_from_info(answer.trouble)
    return GatewayGone(
        "The gateway sent an unexpected answer.",
        hint="Restart it: hermes gateway restart",
    )
