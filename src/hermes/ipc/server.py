"""The socket server: check the client, open its conversation and answer its requests."""

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

from hermes.app.build import App
from hermes.ipc.client import ConversationOptions, GatewayGone, error_info
from hermes.ipc.compatibility import Compatibility
from hermes.ipc.conversation_service import ConversationService, open_conversation
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
)
from hermes.ipc.send_queue import SendQueue
from hermes.ipc.unix_socket import listen, peer_uid
from hermes.ports.model import Model
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Notice

HELLO_TIMEOUT = 10.0
"""Seconds to wait for the first frame."""
_READ_SIZE = 256 * 1024

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 256
"""Maximum number of clients; another one is rejected and runs its own agent."""
ACCEPT_RETRY = 0.2
"""Seconds to wait when the system has no free connections."""


class ClientConnection:
    def __init__(
        self,
        connection: socket.socket,
        app: App,
        compatibility: Compatibility,
        wake: Callable[[], None],
        answered: Callable[[], None],
    ) -> None:
        """`answered` is called after each completed request."""
        self._connection = connection
        self._app = app
        self._compatibility = compatibility
        self._wake = wake
        self._frames = FrameBuffer(MAX_FIRST_FRAME)
        self._requests = FrameDecoder[ClientFrame](ClientFrame)
        self._send_queue = SendQueue(connection)
        self._service: ConversationService | None = None
        self.silent = True
        """True until the first frame has arrived."""
        self._busy = False
        self._answer_pending = False
        self._answered = answered

    @property
    def busy(self) -> bool:
        """Whether a request of this client is being processed."""
        return self._busy or self._answer_pending

    def shut_down(self) -> None:
        """Shut the connection down, so that its reader sees the end."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    async def serve(self) -> None:
        """Serve the client until it disconnects or the server closes."""
        try:
            await self._serve()
        except HermesError as error:
            self._send_queue.add(RequestFailed(error_info(error)))
        finally:
            await self._send_queue.finish()

    async def _serve(self) -> None:
        first = None
        with anyio.move_on_after(HELLO_TIMEOUT):
            frame = await self._receive()
            first = None if frame is None else FrameDecoder[FirstFrame](FirstFrame).decode(frame)
        self.silent = False
        match first:
            case None:
                return
            case Wake():
                self._wake()
                self._send_queue.add(WakeAccepted())
            case Hello():
                await self._handshake(first)
            case _:
                assert_never(first)

    async def _handshake(self, hello: Hello) -> None:
        reason = self._compatibility.difference(hello)
        chosen: Model | None = None
        if not reason and (hello.start.model or hello.start.provider):
            chosen, reason = await self._choose(hello.start)
        if reason:
            self._send_queue.add(Refused(reason))
            return
        self._send_queue.add(Accepted())
        self._frames.limit = MAX_FRAME
        async with anyio.create_task_group() as group:
            group.start_soon(self._send_queue.send)
            await self._converse(hello.start, chosen)
            group.cancel_scope.cancel()

    async def _choose(self, start: ConversationOptions) -> tuple[Model | None, str]:
        """Return the requested model, if a session can store it."""
        models = self._app.models
        try:
            model = await models.choose(start.model, start.provider or None)
            stored = await models.choose(model.name, model.provider)
        except HermesError as error:
            return None, str(error)
        if (stored.name, stored.provider) != (model.name, model.provider):
            return None, f"A session cannot be bound to {model.provider}/{model.name}."
        return model, ""

    async def _converse(self, start: ConversationOptions, chosen: Model | None) -> None:
        try:
            service = await open_conversation(self._app, start, chosen)
            greeting = await service.greet()
        except HermesError as error:
            self._send_queue.add(RequestFailed(error_info(error)))
            return
        await self._send_queue.put(ConversationOpened(greeting, service.state))
        async with anyio.create_task_group() as group:
            try:
                await self._listen(service, group)
            except HermesError as error:
                self._send_queue.add(RequestFailed(error_info(error)))
            # A client that disconnects during a turn cancels it.
            service.disconnect()

    async def _listen(self, service: ConversationService, group: TaskGroup) -> None:
        """Handle frames until the client disconnects. Raises for an invalid frame."""
        while (frame := await self._receive()) is not None:
            request = self._requests.decode(frame)
            if isinstance(request, Interrupt):
                service.interrupt()
            elif isinstance(request, AnswerQuestion):
                await self._answer_question(service, request)
            elif isinstance(request, Steer):
                group.start_soon(service.steer, request.word, request.text)
            elif self._busy:
                raise UsageError("The previous request is still running.")
            else:
                await group.start(self._work, service, request)
        self._send_queue.close()

    async def _answer_question(self, service: ConversationService, frame: AnswerQuestion) -> None:
        try:
            text = await service.answer(frame.question, frame.words)
        except HermesError as error:
            text = error.sentence
        if text:
            await self._send_queue.put_event(Notice(text))

    async def _work(
        self, service: ConversationService, request: ClientFrame, *, task_status: TaskStatus[None]
    ) -> None:
        self._busy = True
        # No other task runs between here and the first await in the service: no interrupt is
        # missed.
        task_status.started()
        try:
            answer = await self._answer(service, request)
        except HermesError as error:
            answer = RequestFailed(error_info(error), service.state)
        except anyio.get_cancelled_exc_class():
            gone = GatewayGone("The gateway was stopped.", hint="Everything up to now is saved.")
            self._send_queue.add(RequestFailed(error_info(gone), service.state))
            raise
        self._busy, self._answer_pending = False, True
        await self._send_queue.put(answer)
        self._answer_pending = False
        self._answered()

    async def _answer(self, service: ConversationService, request: ClientFrame) -> ServerFrame:
        match request:
            case StartTurn(question=question):
                outcome = await service.submit(question, self._send_queue.put_event)
                return TurnEnded(outcome, service.state)
            case RunCommand(line=line):
                reply = await service.command(line)
                return CommandReplied(reply, service.state)
            case GetUsage(ended=ended):
                return UsageResult(service.usage_report(ended))
            case CheckNews():
                return NewsResult(await service.has_news(), service.state)
            case GetHistory():
                return HistoryResult(await service.recent_history())
            case AnswerQuestion() | Steer() | Interrupt():
                raise UsageError("Nothing is running.")
            case _:
                assert_never(request)

    async def _receive(self) -> bytes | None:
        """Return the next frame, or None if the client has disconnected."""
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


class IpcServer:
    """Accepts connections of our own user, and serves each one a conversation."""

    def __init__(
        self,
        folder: Path,
        app: App,
        fingerprint: EnvFingerprint,
        wake: Callable[[], None],
        uid: int | None = None,
    ) -> None:
        """`fingerprint` is that of the environment the app was built from.

        `wake` is called when another process added something to the inbox or outbox.
        """
        self._folder = folder
        self._app = app
        self._compatibility = Compatibility(app, fingerprint)
        self._wake = wake
        self._uid = os.getuid() if uid is None else uid
        self._connections: dict[ClientConnection, None] = {}
        self._closing = anyio.CancelScope()
        self._idle = anyio.Event()

    @property
    def busy(self) -> int:
        """Number of clients whose request is being processed."""
        return sum(client.busy for client in self._connections)

    def close(self) -> None:
        """Accept no more connections."""
        self._closing.cancel()
        self._check_idle()

    async def wait_idle(self) -> None:
        """After `close`, wait until no request is being processed."""
        await self._idle.wait()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. Raises `ConfigError` if the socket cannot be created."""
        listening = listen(self._folder)
        try:
            async with anyio.create_task_group() as group:
                task_status.started()
                with self._closing:
                    await self._accept(listening.listener, group)
                listening.close()
                await anyio.sleep_forever()
        finally:
            listening.close()

    async def _accept(self, listener: socket.socket, group: TaskGroup) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                await anyio.wait_readable(listener)
                continue
            except OSError as error:
                log.warning("cannot accept a connection: %s", error)
                await self._app.clock.sleep(ACCEPT_RETRY)
                continue
            connection.setblocking(False)
            group.start_soon(self._serve, connection)

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one connection; a failure must not affect the others."""
        client = ClientConnection(
            connection, self._app, self._compatibility, self._wake, self._check_idle
        )
        try:
            if self._is_allowed_peer(connection):
                self._connections[client] = None
                await client.serve()
        except Exception:
            log.exception("serving a local client failed")
        finally:
            self._connections.pop(client, None)
            self._check_idle()
            connection.close()

    def _check_idle(self) -> None:
        if self._closing.cancel_called and not any(client.busy for client in self._connections):
            self._idle.set()

    def _is_allowed_peer(self, connection: socket.socket) -> bool:
        user = peer_uid(connection)
        if user != self._uid:
            log.warning("rejected a local connection from user %d", user)
            return False
        if len(self._connections) >= MAX_CONNECTIONS and not self._make_room():
            log.warning("rejected a local connection: more than %d clients", MAX_CONNECTIONS)
            return False
        return True

    def _make_room(self) -> bool:
        """Close the oldest connection without a request; return whether there was one."""
        silent = next((client for client in self._connections if client.silent), None)
        if silent is None:
            return False
        del self._connections[silent]
        silent.shut_down()
        return True
