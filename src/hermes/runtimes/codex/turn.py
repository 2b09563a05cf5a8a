"""One turn in a thread of codex: begun, followed, spoken to, and ended in good order."""

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.ports.approvals import Approvals
from hermes.ports.blobs import Blobs
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import (
    RETRY_HINT,
    CodexError,
    process_ended,
    quote,
    request_refused,
    turn_failed,
)
from hermes.runtimes.codex.event_mapper import EventMapper, WatchedCommand
from hermes.runtimes.codex.notifications import UsageMeter
from hermes.runtimes.codex.protocol import Json, RpcId, RpcMessage
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.server_requests import ServerRequestHandler, UnknownRequest
from hermes.runtimes.codex.service import CodexTimeouts
from hermes.runtimes.codex.thread_store import StoredThread
from hermes.runtimes.codex.threads import OpenThread, user_input
from hermes.schema.errors import ModelError, Overloaded
from hermes.schema.events import MessageAdded, Notice, Outcome
from hermes.schema.messages import User
from hermes.schema.scope import Role, Scope

log = logging.getLogger(__name__)

STEERING_INTERVAL = 0.25
"""Seconds between two looks at what people said meanwhile."""
LIMIT_NOTICE_PERCENT = 90.0
"""Percent of the account's limit, from which on it is told."""
INTERRUPT_WAIT = 2.0
"""Seconds for the last words of a turn that was interrupted."""


class TurnTimedOut(Exception):
    """The turn was given up on: `why` for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


WatchCommand = Callable[[str, str, float | None, str, Scope], WatchedCommand]
"""Given a command, its folder, and when it began: what of others it may show or bring.

Then the workspace, if others than the owner have a say; the command is empty for an edit. Last the
scope of the turn.
"""


class CodexTurnDeps(Struct, frozen=True, kw_only=True):
    clock: Clock
    keep: Callable[[str, StoredThread], Awaitable[None]]
    patience: CodexTimeouts
    model: str = ""
    effort: str = ""
    blobs: Blobs | None = None
    counsel: Approvals | None = None
    look: WatchCommand | None = None


class _TurnRef(Struct):
    id: str = ""


class _TurnStarted(Struct):
    turn: _TurnRef = msgspec.field(default_factory=_TurnRef)


class _Resolved(Struct, rename="camel"):
    request_id: RpcId | None = None


class CodexTurn:
    """`retire` says afterwards that its process is better not used again."""

    def __init__(
        self,
        parts: CodexTurnDeps,
        server: AppServer,
        thread: OpenThread,
        runtime_request: RuntimeRequest,
        tell: EmitRuntimeEvent,
    ) -> None:
        self._parts = parts
        self._server = server
        self._thread = thread
        self.thread = thread.id
        self._runtime_request = runtime_request
        self._tell = tell
        self.mapper = EventMapper(parts.model or thread.model, thread.provider)
        self.mapper.last = thread.known
        self.mapper.spending = UsageMeter(server.spent.get(thread.id), thread.filled)
        self._answers = ServerRequestHandler(
            parts.counsel, parts.clock, runtime_request, tell, self.mapper
        )
        self._asking: dict[RpcId, anyio.CancelScope] = {}
        self._deadline = anyio.current_time() + parts.patience.deadline
        self._quiet: float | None = None
        self.id = ""
        self.retire = False

    async def run(self) -> TurnEnd:
        with self._server.listening(self._thread.id) as incoming:
            try:
                await self._begin()
                await self._follow_and_steer(incoming)
                await self._stop(incoming)
            except TurnTimedOut as error:
                self.retire = True
                await self._stop(incoming)
                return await self._given_up(error.why)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop(incoming)
                    await self._emit_remaining()
                    await self._emit_unread()
                raise
        return await self._ending()

    async def _begin(self) -> None:
        asked = self._thread.asked
        params: Json = {
            "threadId": self._thread.id,
            "input": await user_input(asked, self._parts.blobs),
        }
        if asked:
            params["clientUserMessageId"] = asked[-1].id
        if self._parts.model and self._parts.model != self._thread.model:
            params["model"] = self._parts.model
        if self._parts.effort:
            params["effort"] = self._parts.effort
        try:
            # Who is interrupted just now must know what to end.
            with anyio.CancelScope(shield=True):
                given = await self._server.call(
                    protocol.TURN_START, params, self._parts.patience.turn
                )
                self.id = msgspec.json.decode(given, type=_TurnStarted).turn.id
                self.mapper.last = asked[-1].id if asked else self._thread.known
                await self.keep()
        except msgspec.DecodeError as error:
            raise request_refused(
                protocol.TURN_START, f"its answer cannot be read ({error})"
            ) from error
        except Overloaded:
            self.retire = True
            raise
        self.mapper.turn = self.id

    async def keep(self) -> None:
        """Write down what the thread knows."""
        ended = self.id if self.mapper.end is not None else ""
        spending = self.mapper.spending
        if spending.total is not None:
            self._server.spent[self._thread.id] = spending.total
        kept = self._thread.kept(self.mapper.last, spending.filled, ended)
        await self._parts.keep(self._runtime_request.scope.session, kept)

    async def _follow_and_steer(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        """Listen to the end, and pass on meanwhile what people say."""
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._forward_steering)
            try:
                await self._follow(incoming, group)
            except Exception as error:  # noqa: BLE001 - raised again, outside of the task group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _follow(
        self, incoming: MemoryObjectReceiveStream[RpcMessage], group: TaskGroup
    ) -> None:
        while self.mapper.end is None and not self.mapper.aborted:
            message: RpcMessage | None = None
            with anyio.move_on_after(self._seconds_left()):
                try:
                    message = await incoming.receive()
                except (anyio.EndOfStream, anyio.ClosedResourceError):
                    self.retire = True
                    raise process_ended(await self._server.said()) from None
            if message is None:
                self._check_deadlines()
            else:
                await self._take(message, group)

    async def _take(self, message: RpcMessage, group: TaskGroup) -> None:
        if message.id is not None:
            self._quiet = None
            scope = self._asking[message.id] = anyio.CancelScope()
            group.start_soon(self._answer, message, message.id, scope)
        elif message.method == protocol.REQUEST_RESOLVED:
            self._resolve(message)
        else:
            await self._watch_command(message)
            for event in self.mapper.feed(message):
                await self._tell(event)
            self._watch(message.method)

    async def _watch_command(self, message: RpcMessage) -> None:
        look = self._parts.look
        begun = self.mapper.begun(message) if look is not None else None
        if look is None or begun is None:
            return
        item, began = begun
        scope = self._runtime_request.scope
        own = scope.role is Role.OWNER and not self.mapper.foreign
        if own and not item.command and item.type not in protocol.AGENT_ITEMS:
            return
        folder, others = item.cwd or scope.workspace, "" if own else scope.workspace
        running = await anyio.to_thread.run_sync(
            look, item.command or "", folder, began, others, scope
        )
        self.mapper.watched(item.id, running)

    def _watch(self, method: str) -> None:
        """After the end of a tool something has to come, whatever it is."""
        if method not in protocol.NOTIFICATIONS:
            return
        patience = self._parts.patience.quiet
        self._quiet = anyio.current_time() + patience if self.mapper.tool_ended else None

    def _seconds_left(self) -> float:
        now = anyio.current_time()
        if self._asking:
            return 1.0
        until = self._deadline if self._quiet is None else min(self._deadline, self._quiet)
        return max(0.0, until - now)

    def _check_deadlines(self) -> None:
        now, patience = anyio.current_time(), self._parts.patience
        if self._asking:
            return
        if now >= self._deadline:
            raise TurnTimedOut(f"turn timed out after {patience.deadline:g} s")
        if self._quiet is not None and now >= self._quiet:
            raise TurnTimedOut(f"codex was silent for {patience.quiet:g} s after a tool had ended")

    async def _answer(self, asked: RpcMessage, number: RpcId, scope: anyio.CancelScope) -> None:
        began = anyio.current_time()
        try:
            with scope:
                await self._server.answer(number, await self._answers.to(asked))
        except UnknownRequest as error:
            await self._server.refuse(number, str(error))
        except msgspec.DecodeError as error:
            await self._server.refuse(number, f"{asked.method} cannot be read: {error}")
        finally:
            self._asking.pop(number, None)
            # Whoever is asked may think; that time is nobody's fault.
            self._deadline += anyio.current_time() - began

    def _resolve(self, message: RpcMessage) -> None:
        """Codex has its answer, or needs none any more."""
        try:
            number = msgspec.json.decode(message.params, type=_Resolved).request_id
        except msgspec.DecodeError:
            return
        if number is not None and (scope := self._asking.get(number)) is not None:
            scope.cancel()

    async def _forward_steering(self) -> None:
        while True:
            await self._parts.clock.sleep(STEERING_INTERVAL)
            said = await self._runtime_request.meanwhile()
            # Whatever becomes of it now, it is answered: by this turn or by the next.
            for message in said:
                self.mapper.steered(message)
            for message in said:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        params: Json = {
            "threadId": self._thread.id,
            "expectedTurnId": self.id,
            "clientUserMessageId": message.id,
            "input": await user_input([message], self._parts.blobs),
        }
        try:
            await self._server.call(protocol.TURN_STEER, params, self._parts.patience.turn)
        except ModelError as error:
            log.info("codex was not told what was said meanwhile: %s", error)

    async def _emit_remaining(self) -> None:
        for event in self.mapper.close():
            await self._tell(event)

    async def _emit_unread(self) -> None:
        """What people said meanwhile is given out once: in the transcript it is not lost."""
        for message in self.mapper.unheard:
            self.mapper.forget_steered(message)
            await self._tell(MessageAdded(message))

    async def _stop(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        """End the turn and the command that it runs: an interrupt alone leaves it running."""
        if self._server.dead or self.mapper.end is not None or not self.id:
            return
        patience = self._parts.patience.interrupt
        thread: Json = {"threadId": self._thread.id}
        try:
            await self._server.call(
                protocol.TURN_INTERRUPT, {**thread, "turnId": self.id}, patience
            )
            await self._server.call(protocol.TERMINALS_CLEAN, thread, patience)
        except ModelError as error:
            log.warning("codex did not stop a turn: %s", error)
            self.retire = True
            return
        with anyio.move_on_after(INTERRUPT_WAIT):
            await self._wait_for_end(incoming)

    async def _wait_for_end(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        while self.mapper.end is None:
            try:
                message = await incoming.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return
            if message.id is not None:
                await self._server.refuse(message.id, "the turn is over")
                continue
            for event in self.mapper.feed(message):
                await self._tell(event)

    async def _given_up(self, why: str) -> TurnEnd:
        answered = self.mapper.answered
        await self._emit_remaining()
        await self._emit_unread()
        sentence = f"⚠️ {quote(why[:1].upper() + why[1:])} {RETRY_HINT}"
        outcome = Outcome.EXHAUSTED if answered else Outcome.FAILED
        return TurnEnd(outcome, sentence, Overloaded.code)

    async def _ending(self) -> TurnEnd:
        mapper = self.mapper
        end = mapper.end
        await self._emit_remaining()
        if (used := self._server.limits.used) >= LIMIT_NOTICE_PERCENT:
            await self._tell(Notice(f"Codex: {used:g} % of what the account may use is used up."))
        if end is not None and end.status == "completed":
            return TurnEnd(Outcome.DONE, unheard=mapper.unheard)
        await self._emit_unread()
        if end is not None and end.status == "failed":
            said = await self._server.said()
            raise turn_failed(end.error or mapper.trouble or CodexError(), said)
        reason = f"⚠️ Codex broke the turn off. {RETRY_HINT}"
        return TurnEnd(Outcome.FAILED, reason, "cancelled")
