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
from hermes.ports.blobs import Blobs
from hermes.ports.counsel import Counsel
from hermes.ports.runtime import Ending, Errand, Tell
from hermes.runtimes.codex import names
from hermes.runtimes.codex.answers import Answers, Unknown
from hermes.runtimes.codex.errors import AGAIN, Told, died, failed, refused, shown
from hermes.runtimes.codex.hearing import Hearing, Running
from hermes.runtimes.codex.kept import Kept
from hermes.runtimes.codex.server import AppServer
from hermes.runtimes.codex.service import Patience
from hermes.runtimes.codex.spending import Spending
from hermes.runtimes.codex.threads import Opened, input_of
from hermes.runtimes.codex.wire import Id, Incoming, Json
from hermes.schema.errors import ModelError, Overloaded
from hermes.schema.events import Notice, Outcome, Said
from hermes.schema.messages import User
from hermes.schema.scope import Role, Scope

log = logging.getLogger(__name__)

LOOK = 0.25
"""Seconds between two looks at what people said meanwhile."""
NEARLY = 90.0
"""Percent of the account's limit, from which on it is told."""
LATE = 2.0
"""Seconds for the last words of a turn that was interrupted."""


class TooLong(Exception):
    """The turn was given up on: `why` for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


Look = Callable[[str, str, float | None, str, Scope], Running]
"""Given a command, its folder, and when it began: what of others it may show or bring.

Then the workspace, if others than the owner have a say; the command is empty for an edit. Last the
scope of the turn.
"""


class TurnParts(Struct, frozen=True, kw_only=True):
    clock: Clock
    keep: Callable[[str, Kept], Awaitable[None]]
    patience: Patience
    model: str = ""
    effort: str = ""
    blobs: Blobs | None = None
    counsel: Counsel | None = None
    look: Look | None = None


class _Turn(Struct):
    id: str = ""


class _Begun(Struct):
    turn: _Turn = msgspec.field(default_factory=_Turn)


class _Resolved(Struct, rename="camel"):
    request_id: Id | None = None


class CodexTurn:
    """`retire` says afterwards that its process is better not used again."""

    def __init__(
        self, parts: TurnParts, server: AppServer, thread: Opened, errand: Errand, tell: Tell
    ) -> None:
        self._parts = parts
        self._server = server
        self._thread = thread
        self.thread = thread.id
        self._errand = errand
        self._tell = tell
        self.hearing = Hearing(parts.model or thread.model, thread.provider)
        self.hearing.last = thread.known
        self.hearing.spending = Spending(server.spent.get(thread.id), thread.filled)
        self._answers = Answers(parts.counsel, parts.clock, errand, tell, self.hearing)
        self._asking: dict[Id, anyio.CancelScope] = {}
        self._deadline = anyio.current_time() + parts.patience.deadline
        self._quiet: float | None = None
        self.id = ""
        self.retire = False

    async def run(self) -> Ending:
        with self._server.listening(self._thread.id) as incoming:
            try:
                await self._begin()
                await self._accompany(incoming)
                await self._stop(incoming)
            except TooLong as error:
                self.retire = True
                await self._stop(incoming)
                return await self._given_up(error.why)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop(incoming)
                    await self._tell_all()
                    await self._tell_unheard()
                raise
        return await self._ending()

    async def _begin(self) -> None:
        asked = self._thread.asked
        params: Json = {
            "threadId": self._thread.id,
            "input": await input_of(asked, self._parts.blobs),
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
                given = await self._server.call(names.TURN_START, params, self._parts.patience.turn)
                self.id = msgspec.json.decode(given, type=_Begun).turn.id
                self.hearing.last = asked[-1].id if asked else self._thread.known
                await self.keep()
        except msgspec.DecodeError as error:
            raise refused(names.TURN_START, f"its answer cannot be read ({error})") from error
        except Overloaded:
            self.retire = True
            raise
        self.hearing.turn = self.id

    async def keep(self) -> None:
        """Write down what the thread knows."""
        ended = self.id if self.hearing.end is not None else ""
        spending = self.hearing.spending
        if spending.total is not None:
            self._server.spent[self._thread.id] = spending.total
        kept = self._thread.kept(self.hearing.last, spending.filled, ended)
        await self._parts.keep(self._errand.scope.session, kept)

    async def _accompany(self, incoming: MemoryObjectReceiveStream[Incoming]) -> None:
        """Listen to the end, and pass on meanwhile what people say."""
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._pass_words_on)
            try:
                await self._follow(incoming, group)
            except Exception as error:  # noqa: BLE001 - raised again, outside of the task group
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _follow(
        self, incoming: MemoryObjectReceiveStream[Incoming], group: TaskGroup
    ) -> None:
        while self.hearing.end is None and not self.hearing.aborted:
            message: Incoming | None = None
            with anyio.move_on_after(self._patience_left()):
                try:
                    message = await incoming.receive()
                except (anyio.EndOfStream, anyio.ClosedResourceError):
                    self.retire = True
                    raise died(await self._server.said()) from None
            if message is None:
                self._check_patience()
            else:
                await self._take(message, group)

    async def _take(self, message: Incoming, group: TaskGroup) -> None:
        if message.id is not None:
            self._quiet = None
            scope = self._asking[message.id] = anyio.CancelScope()
            group.start_soon(self._answer, message, message.id, scope)
        elif message.method == names.RESOLVED:
            self._resolve(message)
        else:
            await self._look_at(message)
            for event in self.hearing.feed(message):
                await self._tell(event)
            self._watch(message.method)

    async def _look_at(self, message: Incoming) -> None:
        look = self._parts.look
        begun = self.hearing.begun(message) if look is not None else None
        if look is None or begun is None:
            return
        item, began = begun
        scope = self._errand.scope
        own = scope.role is Role.OWNER and not self.hearing.foreign
        if own and not item.command and item.type not in names.AGENTS:
            return
        folder, others = item.cwd or scope.workspace, "" if own else scope.workspace
        running = await anyio.to_thread.run_sync(
            look, item.command or "", folder, began, others, scope
        )
        self.hearing.watched(item.id, running)

    def _watch(self, method: str) -> None:
        """After the end of a tool something has to come, whatever it is."""
        if method not in names.NOTES:
            return
        patience = self._parts.patience.quiet
        self._quiet = anyio.current_time() + patience if self.hearing.tool_ended else None

    def _patience_left(self) -> float:
        now = anyio.current_time()
        if self._asking:
            return 1.0
        until = self._deadline if self._quiet is None else min(self._deadline, self._quiet)
        return max(0.0, until - now)

    def _check_patience(self) -> None:
        now, patience = anyio.current_time(), self._parts.patience
        if self._asking:
            return
        if now >= self._deadline:
            raise TooLong(f"turn timed out after {patience.deadline:g} s")
        if self._quiet is not None and now >= self._quiet:
            raise TooLong(f"codex was silent for {patience.quiet:g} s after a tool had ended")

    async def _answer(self, asked: Incoming, number: Id, scope: anyio.CancelScope) -> None:
        began = anyio.current_time()
        try:
            with scope:
                await self._server.answer(number, await self._answers.to(asked))
        except Unknown as error:
            await self._server.refuse(number, str(error))
        except msgspec.DecodeError as error:
            await self._server.refuse(number, f"{asked.method} cannot be read: {error}")
        finally:
            self._asking.pop(number, None)
            # Whoever is asked may think; that time is nobody's fault.
            self._deadline += anyio.current_time() - began

    def _resolve(self, message: Incoming) -> None:
        """Codex has its answer, or needs none any more."""
        try:
            number = msgspec.json.decode(message.params, type=_Resolved).request_id
        except msgspec.DecodeError:
            return
        if number is not None and (scope := self._asking.get(number)) is not None:
            scope.cancel()

    async def _pass_words_on(self) -> None:
        while True:
            await self._parts.clock.sleep(LOOK)
            said = await self._errand.meanwhile()
            # Whatever becomes of it now, it is answered: by this turn or by the next.
            for message in said:
                self.hearing.steered(message)
            for message in said:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        params: Json = {
            "threadId": self._thread.id,
            "expectedTurnId": self.id,
            "clientUserMessageId": message.id,
            "input": await input_of([message], self._parts.blobs),
        }
        try:
            await self._server.call(names.TURN_STEER, params, self._parts.patience.turn)
        except ModelError as error:
            log.info("codex was not told what was said meanwhile: %s", error)

    async def _tell_all(self) -> None:
        for event in self.hearing.close():
            await self._tell(event)

    async def _tell_unheard(self) -> None:
        """What people said meanwhile is given out once: in the transcript it is not lost."""
        for message in self.hearing.unheard:
            self.hearing.unsteered(message)
            await self._tell(Said(message))

    async def _stop(self, incoming: MemoryObjectReceiveStream[Incoming]) -> None:
        """End the turn and the command that it runs: an interrupt alone leaves it running."""
        if self._server.dead or self.hearing.end is not None or not self.id:
            return
        patience = self._parts.patience.interrupt
        thread: Json = {"threadId": self._thread.id}
        try:
            await self._server.call(names.TURN_INTERRUPT, {**thread, "turnId": self.id}, patience)
            await self._server.call(names.TERMINALS_CLEAN, thread, patience)
        except ModelError as error:
            log.warning("codex did not stop a turn: %s", error)
            self.retire = True
            return
        with anyio.move_on_after(LATE):
            await self._hear_the_end(incoming)

    async def _hear_the_end(self, incoming: MemoryObjectReceiveStream[Incoming]) -> None:
        while self.hearing.end is None:
            try:
                message = await incoming.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return
            if message.id is not None:
                await self._server.refuse(message.id, "the turn is over")
                continue
            for event in self.hearing.feed(message):
                await self._tell(event)

    async def _given_up(self, why: str) -> Ending:
        answered = self.hearing.answered
        await self._tell_all()
        await self._tell_unheard()
        sentence = f"⚠️ {shown(why[:1].upper() + why[1:])} {AGAIN}"
        outcome = Outcome.EXHAUSTED if answered else Outcome.FAILED
        return Ending(outcome, sentence, Overloaded.code)

    async def _ending(self) -> Ending:
        hearing = self.hearing
        end = hearing.end
        await self._tell_all()
        if (used := self._server.limits.used) >= NEARLY:
            await self._tell(Notice(f"Codex: {used:g} % of what the account may use is used up."))
        if end is not None and end.status == "completed":
            return Ending(Outcome.DONE, unheard=hearing.unheard)
        await self._tell_unheard()
        if end is not None and end.status == "failed":
            said = await self._server.said()
            raise failed(end.error or hearing.trouble or Told(), said)
        reason = f"⚠️ Codex broke the turn off. {AGAIN}"
        return Ending(Outcome.FAILED, reason, "cancelled")
