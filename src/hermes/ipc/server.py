"""One connection to the door: who it is, what it wants, and the conversation that follows."""

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import assert_never

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from hermes.app.build import App
from hermes.ipc.client import ConversationOptions, GatewayGone
from hermes.ipc.compatibility import Compatibility
from hermes.ipc.conversation_service import ConversationService, open_conversation
from hermes.ipc.errors import error_info
from hermes.ipc.protocol import (
    MAX_FIRST_FRAME,
    MAX_FRAME,
    Accepted,
    AnswerQuestion,
    CheckNews,
    ClientFrame,
    CommandReplied,
    ConversationOpened,
    EnvFingerprint,
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
    client_frame_decoder,
    first_frame_decoder,
)
from hermes.ipc.send_queue import SendQueue
from hermes.ipc.unix_socket import listen, peer_uid
from hermes.ports.model import Model
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Notice
from hermes.session.conversation import SessionOptions

HELLO_TIMEOUT = 10.0
"""Seconds in which a guest says what he wants."""
_READ_SIZE = 256 * 1024


def _nothing() -> None:
    return None


class ServerCallbacks(Struct, frozen=True, kw_only=True):
    """What the house does for those who do not want to talk.

    `wake` is told that something waits in the inbox or the outbox.
    """

    wake: Callable[[], None] = _nothing


class ClientConnection:
    def __init__(
        self,
        connection: socket.socket,
        app: App,
        likeness: Compatibility,
        services: ServerCallbacks,
        answered: Callable[[], None],
    ) -> None:
        """`answered` hears when something that was asked for has been done."""
        self._connection = connection
        self._app = app
        self._likeness = likeness
        self._services = services
        self._frames = FrameBuffer(MAX_FIRST_FRAME)
        self._requests = client_frame_decoder()
        self._outlet = SendQueue(connection)
        self._host: ConversationService | None = None
        self.silent = True
        """Until the first request is whole."""
        self._busy = False
        self._owed = False
        self._answered = answered

    @property
    def busy(self) -> bool:
        """Whether something is being done for him."""
        return self._busy or self._owed

    def hang_up(self) -> None:
        """Let nothing more come: whoever reads here sees the end."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    async def attend(self) -> None:
        """Until the guest leaves, or we have to."""
        try:
            await self._attend()
        except HermesError as error:
            self._outlet.add(RequestFailed(error_info(error)))
        finally:
            await self._outlet.part()

    async def _attend(self) -> None:
        first = None
        with anyio.move_on_after(HELLO_TIMEOUT):
            frame = await self._receive()
            first = None if frame is None else first_frame_decoder().read(frame)
        self.silent = False
        match first:
            case None:
                return
            case Wake():
                self._services.wake()
                self._outlet.add(WakeAccepted())
            case Hello():
                await self._handshake(first)
            case _:
                assert_never(first)

    async def _handshake(self, hello: Hello) -> None:
        reason = self._likeness.difference(hello)
        chosen: Model | None = None
        if not reason and (hello.start.model or hello.start.provider):
            chosen, reason = await self._choose(hello.start)
        if reason:
            self._outlet.add(Refused(reason))
            return
        self._outlet.add(Accepted())
        self._frames.limit = MAX_FRAME
        async with anyio.create_task_group() as group:
            group.start_soon(self._outlet.send)
            await self._converse(hello.start, chosen)
            group.cancel_scope.cancel()

    async def _choose(self, start: ConversationOptions) -> tuple[Model | None, str]:
        """The model that is asked for, if a session can be made to keep it."""
        models = self._app.models
        try:
            model = await models.choose(start.model, start.provider or None)
            kept = await models.choose(model.name, model.provider)
        except HermesError as error:
            return None, str(error)
        if (kept.name, kept.provider) != (model.name, model.provider):
            return None, f"A session cannot be bound to {model.provider}/{model.name}."
        return model, ""

    async def _converse(self, start: ConversationOptions, chosen: Model | None) -> None:
        try:
            host = await self._opened(start, chosen)
            greeting = await host.greet()
        except HermesError as error:
            self._outlet.add(RequestFailed(error_info(error)))
            return
        await self._outlet.put(ConversationOpened(greeting, host.state))
        async with anyio.create_task_group() as works:
            try:
                await self._listen(host, works)
            except HermesError as error:
                self._outlet.add(RequestFailed(error_info(error)))
            # Whoever leaves in the middle of a turn does not want it any more.
            host.part()

    async def _listen(self, host: ConversationService, works: TaskGroup) -> None:
        """Until the guest has left. Raises what makes it impossible to understand him."""
        while (frame := await self._receive()) is not None:
            request = self._requests.read(frame)
            if isinstance(request, Interrupt):
                host.interrupt()
            elif isinstance(request, AnswerQuestion):
                await self._decide(host, request)
            elif isinstance(request, Steer):
                works.start_soon(host.steer, request.word, request.text)
            elif self._busy:
                raise UsageError("One thing at a time: the last request is not answered yet.")
            else:
                await works.start(self._work, host, request)
        self._outlet.close()

    async def _decide(self, host: ConversationService, decided: AnswerQuestion) -> None:
        try:
            told = await host.answer(decided.question, decided.words)
        except HermesError as error:
            told = error.sentence
        if told:
            await self._outlet.tell(Notice(told))

    async def _opened(
        self, start: ConversationOptions, chosen: Model | None
    ) -> ConversationService:
        origin = SessionOptions(
            source=start.source,
            cwd=start.cwd,
            model=chosen.name if chosen else "",
            provider=chosen.provider if chosen else "",
            attended=start.person,
            yolo=start.yolo,
            later=start.person,
        )

        async def find() -> Model:
            return chosen or await self._app.models.find()

        return await open_conversation(self._app, start, origin, find)

    async def _work(
        self, host: ConversationService, request: ClientFrame, *, task_status: TaskStatus[None]
    ) -> None:
        self._busy = True
        # Between here and the first wait in `host` nobody else runs: no interrupt is missed.
        task_status.started()
        try:
            answer = await self._answer(host, request)
        except HermesError as error:
            answer = RequestFailed(error_info(error), host.state)
        except anyio.get_cancelled_exc_class():
            gone = GatewayGone("The gateway was stopped.", hint="Nothing said so far is lost.")
            self._outlet.add(RequestFailed(error_info(gone), host.state))
            raise
        self._busy, self._owed = False, True
        await self._outlet.put(answer)
        self._owed = False
        self._answered()

    async def _answer(self, host: ConversationService, request: ClientFrame) -> ServerFrame:
        match request:
            case StartTurn(question=question):
                outcome = await host.say(question, self._outlet.tell)
                return TurnEnded(outcome, host.state)
            case RunCommand(line=line):
                reply = await host.command(line)
                return CommandReplied(reply, host.state)
            case GetUsage(ended=ended):
                return UsageResult(host.report(ended))
            case CheckNews():
                return NewsResult(await host.has_news())
            case GetHistory():
                return HistoryResult(await host.past())
            case AnswerQuestion() | Steer() | Interrupt():
                raise UsageError("There is nothing to interrupt.")
            case _:
                assert_never(request)

    async def _receive(self) -> bytes | None:
        """The next frame; None when the guest has left."""
        while (frame := self._frames.take()) is None:
            data = await self._read()
            if not data:
                return None
            self._frames.feed(data)
        return frame

    async def _read(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self._connection.recv(_READ_SIZE)
            except BlockingIOError:
                await anyio.wait_readable(self._connection)
            except OSError:
                return b""


log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""How many guests there may be at a time; one more is sent away, and helps himself."""
ACCEPT_RETRY = 0.2
"""Seconds to wait when the system has no more connections to give."""


class IpcServer:
    """Lets in whoever has our own user id, and gives each a conversation of his own."""

    def __init__(
        self,
        folder: Path,
        app: App,
        marks: EnvFingerprint,
        services: ServerCallbacks = ServerCallbacks(),  # noqa: B008 - a frozen value
        uid: int | None = None,
    ) -> None:
        """`marks` are those of the environment the app was made from (`marks_of`)."""
        self._folder = folder
        self._app = app
        self._likeness = Compatibility(app, marks)
        self._services = services
        self._uid = os.getuid() if uid is None else uid
        self._connections: dict[ClientConnection, None] = {}
        self._closing = anyio.CancelScope()
        self._idle = anyio.Event()

    @property
    def busy(self) -> int:
        """For how many guests something is being done."""
        return sum(guest.busy for guest in self._connections)

    def close(self) -> None:
        """Let nobody in any more."""
        self._closing.cancel()
        self._notice()

    async def idle(self) -> None:
        """After `close`: wait until nothing is being done for anybody."""
        await self._idle.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until it is cancelled. Raises `ConfigError` when the socket cannot be had."""
        place = listen(self._folder)
        try:
            async with anyio.create_task_group() as group:
                task_status.started()
                with self._closing:
                    await self._let_in(place.listener, group)
                place.close()
                await anyio.sleep_forever()
        finally:
            place.close()

    async def _let_in(self, listener: socket.socket, group: TaskGroup) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                await anyio.wait_readable(listener)
                continue
            except OSError as error:
                log.warning("nobody can be let in just now: %s", error)
                await self._app.clock.sleep(ACCEPT_RETRY)
                continue
            connection.setblocking(False)
            group.start_soon(self._attend, connection)

    async def _attend(self, connection: socket.socket) -> None:
        """No guest's mishap is another's."""
        guest = ClientConnection(
            connection, self._app, self._likeness, self._services, self._notice
        )
        try:
            if self._is_allowed_peer(connection):
                self._connections[guest] = None
                await guest.attend()
        except Exception:
            log.exception("a guest at the local door could not be attended to")
        finally:
            self._connections.pop(guest, None)
            self._notice()
            connection.close()

    def _notice(self) -> None:
        if self._closing.cancel_called and not any(guest.busy for guest in self._connections):
            self._idle.set()

    def _is_allowed_peer(self, connection: socket.socket) -> bool:
        user = peer_uid(connection)
        if user != self._uid:
            log.warning("user %d was turned away from the local door", user)
            return False
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            log.warning(
                "more than %d guests at the local door; one was turned away", MAX_CONNECTIONS
            )
            return False
        return True

    def _make_room(self) -> bool:
        """Whether a connection could be closed that has asked for nothing yet, the oldest first."""
        silent = next((guest for guest in self._connections if guest.silent), None)
        if silent is None:
            return False
        del self._connections[silent]
        silent.hang_up()
        return True
