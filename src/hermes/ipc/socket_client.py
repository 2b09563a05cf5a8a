"""The caller's end of the socket: frames out and in, one after the other, without an event loop."""

import os
import select
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import NoReturn

from hermes import __version__
from hermes.ipc.client import (
    AgentClient,
    CommandReply,
    ConversationOptions,
    ConversationState,
    EventDisplay,
    GatewayGone,
    Greeting,
    RecentHistory,
    RequestNotReceived,
    ShowEvent,
    UsageReport,
    UserInput,
)
from hermes.ipc.errors import error_from_info
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
    server_frame_decoder,
)
from hermes.ipc.unix_socket import connect_socket, peer_uid
from hermes.schema.errors import HermesError
from hermes.schema.events import Outcome, RunEnded

CONNECT_TIMEOUT = 2.0
"""Seconds after which a gateway that does not take calls counts as none."""
_READ_SIZE = 256 * 1024
_INTERRUPT = encode_frame(Interrupt())


class SocketConnection:
    """One connection. `interrupt` may come at any moment, also in the middle of a frame."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = FrameBuffer(MAX_FRAME)
        self._reader = server_frame_decoder()
        self._sending = Lock()
        self._interrupted = False

    def send(self, frame: FirstFrame | ClientFrame) -> None:
        """Raises `UnicodeEncodeError` for text that is none, before anything is sent."""
        data = encode_frame(frame)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise _gateway_gone(RequestNotReceived) from error
        self._pass_on_interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        self._pass_on_interrupt()

    def receive(self) -> ServerFrame:
        while (frame := self._frames.take()) is None:
            try:
                data = self._connection.recv(_READ_SIZE)
            except ConnectionResetError as error:
                # So the kernel says that nobody has read what was sent last.
                raise _gateway_gone(RequestNotReceived) from error
            except OSError as error:
                raise _gateway_gone() from error
            if not data:
                raise _gateway_gone()
            self._frames.feed(data)
        return self._reader.read(frame)

    def ready(self, seconds: float) -> bool:
        """Whether something came, or the other side is gone, by then."""
        return bool(select.select([self._connection], [], [], seconds)[0])

    def wait_at_most(self, seconds: float | None) -> None:
        self._connection.settimeout(seconds)

    def _pass_on_interrupt(self) -> None:
        """Whoever holds the lock looks again when it is free, so that no wish is lost."""
        while self._interrupted and self._sending.acquire(blocking=False):
            try:
                self._interrupted = False
                # Where it cannot be said, the loss of the connection says it.
                with suppress(OSError):
                    self._connection.sendall(_INTERRUPT)
            finally:
                self._sending.release()


@contextmanager
def open_socket(folder: Path) -> Generator[SocketConnection | None]:
    """A line to the gateway of this home; None when none of ours listens there."""
    try:
        connection = connect_socket(folder, CONNECT_TIMEOUT)
    except OSError:
        yield None
        return
    with connection:
        yield SocketConnection(connection) if peer_uid(connection) == os.getuid() else None


def _gateway_gone(kind: type[GatewayGone] = GatewayGone) -> GatewayGone:
    return kind(
        "The gateway hung up.",
        hint="What was said so far is kept (hermes sessions list); "
        "to see whether it runs: hermes gateway status",
    )


NEWS_TIMEOUT = 0.1
"""Seconds for an answer that nobody waits for."""
HANDSHAKE_TIMEOUT = 5.0
"""Seconds in which a gateway says whether it takes somebody in."""


class SocketClient:
    def __init__(self, line: SocketConnection, welcome: ConversationOpened) -> None:
        self._line = line
        self.greeting: Greeting = welcome.greeting
        self.state: ConversationState = welcome.state
        self._looking = False

    def say(self, question: UserInput, show: ShowEvent) -> Outcome:
        audience = EventDisplay(show, self.interrupt)
        self._send(StartTurn(question))
        while isinstance(answer := self._line.receive(), EventFrame):
            audience.hear(answer.event)
        if not isinstance(answer, TurnEnded):
            self._fail(answer)
        self.state = answer.state
        audience.check()
        return answer.outcome

    def answer(self, question: str, words: str) -> None:
        self._line.send(AnswerQuestion(question, words))

    def steer(self, word: str, text: str) -> None:
        self._line.send(Steer(word, text))

    def news(self) -> bool:
        """Asked in the middle of somebody's typing: an answer that is late counts later."""
        if not self._looking:
            self._line.send(CheckNews())
            self._looking = True
        return self._line.ready(NEWS_TIMEOUT) and self._looked()

    def _looked(self) -> bool:
        answer = self._line.receive()
        self._looking = False
        if not isinstance(answer, NewsResult):
            self._fail(answer)
        return answer.news

    def _send(self, request: ClientFrame) -> None:
        """One thing at a time: what was asked before is answered first."""
        if self._looking:
            try:
                self._looked()
            except GatewayGone as gone:
                raise RequestNotReceived(str(gone), hint=gone.hint) from gone
        self._line.send(request)

    def past(self) -> RecentHistory:
        self._send(GetHistory())
        answer = self._line.receive()
        if not isinstance(answer, HistoryResult):
            self._fail(answer)
        return answer.past

    def command(self, line: str) -> CommandReply:
        self._send(RunCommand(line))
        answer = self._line.receive()
        if not isinstance(answer, CommandReplied):
            self._fail(answer)
        self.state = answer.state
        return answer.reply

    def report(self, ended: RunEnded | None) -> UsageReport:
        self._send(GetUsage(ended))
        answer = self._line.receive()
        if not isinstance(answer, UsageResult):
            self._fail(answer)
        return answer.report

    def interrupt(self) -> None:
        self._line.interrupt()

    def _fail(self, answer: ServerFrame) -> NoReturn:
        if isinstance(answer, RequestFailed):
            self.state = answer.state or self.state
        raise _failure(answer)


def _ignore_refusal(reason: str) -> None:
    """Whoever runs a turn alone is not interested in who else could have."""


@contextmanager
def open_socket_client(
    folder: Path,
    env: Mapping[str, str],
    start: ConversationOptions,
    refused: Callable[[str], None] = _ignore_refusal,
) -> Generator[AgentClient | None]:
    """None when no gateway runs, or when its agent would not do the same as one of our own.

    `refused` hears what is different then.
    """
    hello = Hello(version=__version__, marks=env_fingerprint(env), start=start)
    with open_socket(folder) as line:
        if line is None or not _is_accepted(line, hello, refused):
            yield None
            return
        answer = line.receive()
        if not isinstance(answer, ConversationOpened):
            raise _failure(answer)
        yield SocketClient(line, answer)


def _is_accepted(line: SocketConnection, hello: Hello, refused: Callable[[str], None]) -> bool:
    line.wait_at_most(HANDSHAKE_TIMEOUT)
    try:
        line.send(hello)
        answer = line.receive()
    except (HermesError, UnicodeEncodeError):
        return False
    line.wait_at_most(None)
    if isinstance(answer, Refused):
        refused(answer.reason)
    return isinstance(answer, Accepted)


def wake_gateway(folder: Path) -> bool:
    """Tell the gateway of this home that there is something to do; False when none runs."""
    with open_socket(folder) as line:
        if line is None:
            return False
        line.wait_at_most(HANDSHAKE_TIMEOUT)
        try:
            line.send(Wake())
            return isinstance(line.receive(), WakeAccepted)
        except HermesError:
            return False


def _failure(answer: ServerFrame) -> HermesError:
    if isinstance(answer, RequestFailed):
        return error_from_info(answer.trouble)
    return GatewayGone(
        "The gateway answered something else than it was asked.",
        hint="Restart it: hermes gateway restart",
    )
