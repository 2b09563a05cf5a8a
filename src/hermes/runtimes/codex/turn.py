"""Run one turn in a codex thread: start it, emit its events, steer it, and end it cleanly."""

import logging
import math

import anyio
import anyio.to_thread
import msgspec
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec import Struct

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.tasks import background_tasks
from hermes.ports.approvals import Approvals
from hermes.ports.plugins import WatchCommand
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.store import Blobs, Store
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import (
    RETRY_HINT,
    process_ended,
    quote,
    request_rejected,
    turn_failed,
)
from hermes.runtimes.codex.event_mapper import EventMapper
from hermes.runtimes.codex.notifications import TurnNotification, UsageMeter
from hermes.runtimes.codex.protocol import Json, RpcId, RpcMessage
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.server_requests import ServerRequestHandler, UnknownRequest
from hermes.runtimes.codex.service import CodexService, CodexTimeouts
from hermes.runtimes.codex.thread_store import ThreadStore
from hermes.runtimes.codex.threads import OpenThread, ThreadSettings, user_input
from hermes.schema.errors import ModelError, Overloaded
from hermes.schema.events import MessageAdded, Notice, Outcome
from hermes.schema.messages import User
from hermes.schema.scope import Role

log = logging.getLogger(__name__)

STEERING_INTERVAL = 0.25
"""Seconds between two checks for new messages."""
LIMIT_NOTICE_PERCENT = 90.0
"""Percentage of the account's limit at which the user is notified."""
INTERRUPT_WAIT = 2.0
"""Seconds to wait for the end of an interrupted turn."""


class TurnTimedOut(Exception):
    """The turn was abandoned; the message is for the user."""


class CodexDeps(Struct, frozen=True, kw_only=True):
    service: CodexService
    store: Store | None
    clock: Clock
    settings: ThreadSettings = ThreadSettings()
    blobs: Blobs | None = None
    approvals: Approvals | None = None
    watch_command: WatchCommand | None = None


class _Resolved(Struct, rename="camel"):
    request_id: RpcId | None = None


class CodexTurn:
    """`retire` means afterwards that the process should not be used again."""

    def __init__(
        self,
        deps: CodexDeps,
        store: ThreadStore,
        server: AppServer,
        thread: OpenThread,
        runtime_request: RuntimeRequest,
        emit: EmitRuntimeEvent,
        *,
        timeouts: CodexTimeouts,
    ) -> None:
        self._deps = deps
        self._timeouts = timeouts
        self._store = store
        self._server = server
        self._thread = thread
        self.thread = thread.id
        self._runtime_request = runtime_request
        self._emit = emit
        self.mapper = EventMapper(deps.settings.model or thread.model, thread.provider)
        self.mapper.last_message = thread.last_known
        self.mapper.usage_meter = UsageMeter(server.token_totals.get(thread.id), thread.filled)
        self._request_handler = ServerRequestHandler(
            deps.approvals, deps.clock, runtime_request, emit, self.mapper
        )
        self._pending_requests: dict[RpcId, anyio.CancelScope] = {}
        self._deadline = anyio.current_time() + self._timeouts.deadline
        self._silence_deadline = math.inf
        self.id = ""
        self.retire = False

    async def run(self) -> TurnEnd:
        with self._server.subscribe(self._thread.id) as incoming:
            try:
                await self._begin()
                await self._follow_and_steer(incoming)
                await self._stop(incoming)
            except TurnTimedOut as error:
                self.retire = True
                await self._stop(incoming)
                return await self._timed_out(str(error))
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop(incoming)
                    await self._emit_remaining()
                    await self._emit_unread()
                raise
        return await self._end()

    async def _begin(self) -> None:
        questions, deps = self._thread.questions, self._deps
        params: Json = {
            "threadId": self._thread.id,
            "input": await user_input(questions, deps.blobs),
        }
        if questions:
            params["clientUserMessageId"] = questions[-1].id
        if deps.settings.model and deps.settings.model != self._thread.model:
            params["model"] = deps.settings.model
        if deps.settings.effort:
            params["effort"] = deps.settings.effort
        try:
            # An interruption must know which turn to end.
            with anyio.CancelScope(shield=True):
                response = await self._server.call(protocol.TURN_START, params, self._timeouts.turn)
                self.id = msgspec.json.decode(response, type=TurnNotification).turn.id
                self.mapper.last_message = (
                    questions[-1].id if questions else self._thread.last_known
                )
                await self.save()
        except JSON_ERRORS as error:
            reason = f"its response is invalid ({error})"
            raise request_rejected(protocol.TURN_START, reason) from error
        except Overloaded:
            self.retire = True
            raise
        self.mapper.turn = self.id

    async def save(self) -> None:
        """Store what the thread knows."""
        ended = self.id if self.mapper.end is not None else ""
        meter = self.mapper.usage_meter
        if meter.total is not None:
            self._server.token_totals[self._thread.id] = meter.total
        kept = self._thread.to_stored(self.mapper.last_message, meter.filled, ended)
        await self._store.put(self._runtime_request.scope.session, kept)

    async def _follow_and_steer(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        """Process messages to the end, while forwarding steering messages."""
        async with background_tasks() as group:
            group.start_soon(self._forward_steering)
            await self._follow(incoming, group)

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
                    raise process_ended(await self._server.log_tail()) from None
            if message is None:
                self._check_deadlines()
            else:
                await self._take(message, group)

    async def _take(self, message: RpcMessage, group: TaskGroup) -> None:
        if message.id is not None:
            self._silence_deadline = math.inf
            scope = self._pending_requests[message.id] = anyio.CancelScope()
            group.start_soon(self._answer, message, message.id, scope)
        elif message.method == protocol.REQUEST_RESOLVED:
            self._resolve(message)
        else:
            await self._watch_command(message)
            for event in self.mapper.feed(message):
                await self._emit(event)
            self._expect_notification(message.method)

    async def _watch_command(self, message: RpcMessage) -> None:
        watch = self._deps.watch_command
        started = self.mapper.started_item(message) if watch is not None else None
        if watch is None or started is None:
            return
        item, began = started
        scope = self._runtime_request.scope
        own = scope.role is Role.OWNER and not self.mapper.has_untrusted_text
        if own and not item.command and item.type not in protocol.AGENT_ITEMS:
            return
        folder, others = item.cwd or scope.workspace, "" if own else scope.workspace
        command = item.command or ""
        running = await anyio.to_thread.run_sync(watch, command, folder, began, others, scope)
        self.mapper.watch_command(item.id, running)

    def _expect_notification(self, method: str) -> None:
        """After the end of a tool, some notification has to follow."""
        if method not in protocol.NOTIFICATIONS:
            return
        quiet = self._timeouts.quiet if self.mapper.tool_ended else math.inf
        self._silence_deadline = anyio.current_time() + quiet

    def _seconds_left(self) -> float:
        if self._pending_requests:
            return 1.0
        until = min(self._deadline, self._silence_deadline)
        return max(0.0, until - anyio.current_time())

    def _check_deadlines(self) -> None:
        now, timeouts = anyio.current_time(), self._timeouts
        if self._pending_requests:
            return
        if now >= self._deadline:
            raise TurnTimedOut(f"turn timed out after {timeouts.deadline:g} s")
        if now >= self._silence_deadline:
            raise TurnTimedOut(
                f"codex sent nothing for {timeouts.quiet:g} s after a tool had ended"
            )

    async def _answer(self, request: RpcMessage, number: RpcId, scope: anyio.CancelScope) -> None:
        began = anyio.current_time()
        try:
            with scope:
                await self._server.answer(number, await self._request_handler.answer(request))
        except UnknownRequest as error:
            await self._server.reject(number, str(error))
        except JSON_ERRORS as error:
            await self._server.reject(number, f"invalid parameters for {request.method}: {error}")
        finally:
            self._pending_requests.pop(number, None)
            # The time people take to answer does not count.
            self._deadline += anyio.current_time() - began

    def _resolve(self, message: RpcMessage) -> None:
        """Codex has its answer, or no longer needs one."""
        try:
            number = msgspec.json.decode(message.params, type=_Resolved).request_id
        except JSON_ERRORS:
            return
        if number is not None and (scope := self._pending_requests.get(number)) is not None:
            scope.cancel()

    async def _forward_steering(self) -> None:
        while True:
            await self._deps.clock.sleep(STEERING_INTERVAL)
            messages = await self._runtime_request.read_steering()
            # Registered first, so that each message is answered by this turn or the next.
            for message in messages:
                self.mapper.add_steering(message)
            for message in messages:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        params: Json = {
            "threadId": self._thread.id,
            "expectedTurnId": self.id,
            "clientUserMessageId": message.id,
            "input": await user_input([message], self._deps.blobs),
        }
        try:
            await self._server.call(protocol.TURN_STEER, params, self._timeouts.turn)
        except ModelError as error:
            log.info("codex did not accept a steering message: %s", error)

    async def _emit_remaining(self) -> None:
        for event in self.mapper.close():
            await self._emit(event)

    async def _emit_unread(self) -> None:
        """Add unread steering messages to the transcript, so that they are not lost."""
        for message in self.mapper.unread_steering:
            self.mapper.forget_steered(message)
            await self._emit(MessageAdded(message))

    async def _stop(self, incoming: MemoryObjectReceiveStream[RpcMessage]) -> None:
        """End the turn and its running command, which an interrupt alone does not stop."""
        if self._server.dead or self.mapper.end is not None or not self.id:
            return
        timeout = self._timeouts.interrupt
        thread: Json = {"threadId": self._thread.id}
        turn: Json = {**thread, "turnId": self.id}
        try:
            await self._server.call(protocol.TURN_INTERRUPT, turn, timeout)
            await self._server.call(protocol.TERMINALS_CLEAN, thread, timeout)
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
                await self._server.reject(message.id, "the turn is over")
                continue
            for event in self.mapper.feed(message):
                await self._emit(event)

    async def _timed_out(self, why: str) -> TurnEnd:
        outcome = Outcome.EXHAUSTED if self.mapper.answered else Outcome.FAILED
        await self._emit_remaining()
        await self._emit_unread()
        sentence = f"⚠️ {quote(why[:1].upper() + why[1:])} {RETRY_HINT}"
        return TurnEnd(outcome, sentence, Overloaded.code)

    async def _end(self) -> TurnEnd:
        end = self.mapper.end
        await self._emit_remaining()
        if (used := self._server.limits.used) >= LIMIT_NOTICE_PERCENT:
            await self._emit(Notice(f"Codex: {used:g} % of the account's limit is used."))
        if end is not None and end.status == "completed":
            return TurnEnd(Outcome.DONE, late_messages=self.mapper.unread_steering)
        await self._emit_unread()
        if end is not None and end.status == "failed":
            error = end.error or self.mapper.last_error
            raise turn_failed(error, await self._server.log_tail())
        reason = f"⚠️ Codex stopped the turn. {RETRY_HINT}"
        return TurnEnd(Outcome.FAILED, reason, "cancelled")
