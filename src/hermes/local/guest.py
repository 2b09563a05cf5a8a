"""One connection to the door: who it is, what it wants, and the conversation that follows."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from hermes.app.build import App
from hermes.local.failures import trouble_of
from hermes.local.host import Host, open_host
from hermes.local.likeness import Likeness
from hermes.local.outlet import Outlet
from hermes.local.partner import GatewayGone, Start
from hermes.local.wire import (
    FIRST_LIMIT,
    LIMIT,
    Accepted,
    Answer,
    Command,
    Decide,
    Ended,
    Failed,
    Frames,
    Hello,
    Interrupt,
    Look,
    Looked,
    Recount,
    Recounted,
    Refused,
    Replied,
    Report,
    Reported,
    Request,
    Say,
    Steer,
    Wake,
    Welcome,
    Woken,
    first_reader,
    request_reader,
)
from hermes.ports.model import Model
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Notice
from hermes.session.conversation import Origin

PATIENCE = 10.0
"""Seconds in which a guest says what he wants."""
_PIECE = 256 * 1024


def _nothing() -> None:
    return None


class Services(Struct, frozen=True, kw_only=True):
    """What the house does for those who do not want to talk.

    `wake` is told that something waits in the inbox or the outbox.
    """

    wake: Callable[[], None] = _nothing


class Guest:
    def __init__(
        self,
        connection: socket.socket,
        app: App,
        likeness: Likeness,
        services: Services,
        answered: Callable[[], None],
    ) -> None:
        """`answered` hears when something that was asked for has been done."""
        self._connection = connection
        self._app = app
        self._likeness = likeness
        self._services = services
        self._frames = Frames(FIRST_LIMIT)
        self._requests = request_reader()
        self._outlet = Outlet(connection)
        self._host: Host | None = None
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
            self._outlet.add(Failed(trouble_of(error)))
        finally:
            await self._outlet.part()

    async def _attend(self) -> None:
        first = None
        with anyio.move_on_after(PATIENCE):
            frame = await self._receive()
            first = None if frame is None else first_reader().read(frame)
        self.silent = False
        match first:
            case None:
                return
            case Wake():
                self._services.wake()
                self._outlet.add(Woken())
            case Hello():
                await self._take_in(first)
            case _:
                assert_never(first)

    async def _take_in(self, hello: Hello) -> None:
        reason = self._likeness.difference(hello)
        chosen: Model | None = None
        if not reason and (hello.start.model or hello.start.provider):
            chosen, reason = await self._choose(hello.start)
        if reason:
            self._outlet.add(Refused(reason))
            return
        self._outlet.add(Accepted())
        self._frames.limit = LIMIT
        async with anyio.create_task_group() as group:
            group.start_soon(self._outlet.send)
            await self._converse(hello.start, chosen)
            group.cancel_scope.cancel()

    async def _choose(self, start: Start) -> tuple[Model | None, str]:
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

    async def _converse(self, start: Start, chosen: Model | None) -> None:
        try:
            host = await self._opened(start, chosen)
            greeting = await host.greet()
        except HermesError as error:
            self._outlet.add(Failed(trouble_of(error)))
            return
        await self._outlet.put(Welcome(greeting, host.state))
        async with anyio.create_task_group() as works:
            try:
                await self._listen(host, works)
            except HermesError as error:
                self._outlet.add(Failed(trouble_of(error)))
            # Whoever leaves in the middle of a turn does not want it any more.
            host.part()

    async def _listen(self, host: Host, works: TaskGroup) -> None:
        """Until the guest has left. Raises what makes it impossible to understand him."""
        while (frame := await self._receive()) is not None:
            request = self._requests.read(frame)
            if isinstance(request, Interrupt):
                host.interrupt()
            elif isinstance(request, Decide):
                await self._decide(host, request)
            elif isinstance(request, Steer):
                works.start_soon(host.steer, request.word, request.text)
            elif self._busy:
                raise UsageError("One thing at a time: the last request is not answered yet.")
            else:
                await works.start(self._work, host, request)
        self._outlet.close()

    async def _decide(self, host: Host, decided: Decide) -> None:
        try:
            told = await host.answer(decided.question, decided.words)
        except HermesError as error:
            told = error.sentence
        if told:
            await self._outlet.tell(Notice(told))

    async def _opened(self, start: Start, chosen: Model | None) -> Host:
        origin = Origin(
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

        return await open_host(self._app, start, origin, find)

    async def _work(self, host: Host, request: Request, *, task_status: TaskStatus[None]) -> None:
        self._busy = True
        # Between here and the first wait in `host` nobody else runs: no interrupt is missed.
        task_status.started()
        try:
            answer = await self._answer(host, request)
        except HermesError as error:
            answer = Failed(trouble_of(error), host.state)
        except anyio.get_cancelled_exc_class():
            gone = GatewayGone("The gateway was stopped.", hint="Nothing said so far is lost.")
            self._outlet.add(Failed(trouble_of(gone), host.state))
            raise
        self._busy, self._owed = False, True
        await self._outlet.put(answer)
        self._owed = False
        self._answered()

    async def _answer(self, host: Host, request: Request) -> Answer:
        match request:
            case Say(question=question):
                outcome = await host.say(question, self._outlet.tell)
                return Ended(outcome, host.state)
            case Command(line=line):
                reply = await host.command(line)
                return Replied(reply, host.state)
            case Report(ended=ended):
                return Reported(host.report(ended))
            case Look():
                return Looked(await host.has_news())
            case Recount():
                return Recounted(await host.past())
            case Decide() | Steer() | Interrupt():
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
                return self._connection.recv(_PIECE)
            except BlockingIOError:
                await anyio.wait_readable(self._connection)
            except OSError:
                return b""
