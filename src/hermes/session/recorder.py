"""Record a run's events and its partial answer durably before they are published."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from anyio import CancelScope
from msgspec import Struct, field
from msgspec.structs import replace

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.kit.tasks import SharedTask
from hermes.kit.text import head_and_tail, plural
from hermes.ports.run_records import (
    FailedRun,
    PartialText,
    PutFailedRun,
    PutPartialText,
    RemovePartialText,
)
from hermes.ports.store import (
    AppendMessage,
    CompleteItem,
    Fence,
    Intent,
    RecordIntent,
    RecordUsage,
    ReleaseLease,
    SettleIntent,
    Store,
    Write,
)
from hermes.schema.errors import HermesError, LeaseLost, StoreError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    ReasoningDelta,
    RunEnded,
    StreamReset,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.session.lease import Lease

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between writes, which is how much text can be lost."""
MAX_TEXT = 200_000
"""Maximum characters stored of one partial answer."""


class PartialAnswer(Struct, eq=False):
    """The text of the current answer of one run."""

    _writer: "PartialAnswerWriter"
    _scope: Scope
    lease: Lease
    _texts: list[str] = []
    _size: int = 0
    _is_stored: bool = False

    def add(self, event: Event) -> None:
        """Remember shown text; one task of all runs writes it."""
        match event:
            case TextDelta(text=text) if self._size < MAX_TEXT:
                self._texts.append(text)
                self._size += len(text)
            case StreamReset():
                self._texts, self._size = [], 0
            case _:
                return
        self._writer.pending[self] = None
        self._writer.task.ensure_running(self._writer.run)

    def write(self, holder: str) -> PutPartialText | None:
        """The write of the text so far; None if there is nothing to store."""
        if not self._texts and not self._is_stored:
            return None
        self._is_stored = True
        scope, text = self._scope, "".join(self._texts)
        return PutPartialText(
            PartialText(run=scope.run, session=scope.session, text=text, holder=holder)
        )

    def closing_writes(self) -> list[Write]:
        """Writes to commit with the stored answer or the end of the run."""
        self._writer.pending.pop(self, None)
        was_stored, self._is_stored = self._is_stored, False
        self._texts, self._size = [], 0
        return [RemovePartialText(self._scope.run)] if was_stored else []


class PartialAnswerWriter(Struct, eq=False):
    """Writes the changed texts of all runs, in a task that ends when nothing changes."""

    _store: Store
    _clock: Clock
    pending: dict[PartialAnswer, None] = {}
    task: SharedTask = field(default_factory=SharedTask)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL)
            if not self.pending:
                return
            changed, self.pending = self.pending, {}
            for partial in changed:
                await self._write(partial)

    async def _write(self, partial: PartialAnswer) -> None:
        # No await between reading the text and the commit: a later closing write comes after it.
        put = partial.write(self._store.workers.own)
        if put is None:
            return
        try:
            await self._store.commit(put, fence=partial.lease.fence)
        except LeaseLost:
            log.info("the text of run %s belongs to another process now", put.partial.run)
        except StoreError as error:
            log.warning("the text of run %s could not be stored: %s", put.partial.run, error)


async def shown_text(store: Store, run: str) -> str:
    """Return what people were shown of an interrupted run's unfinished answer."""
    partial = await store.runs.partial_text(run)
    return "" if partial is None else partial.text


async def take_partial_answers(
    store: Store, clock: Clock, session: str, fence: Fence
) -> Sequence[Assistant]:
    """Add partial answers of interrupted runs to the transcript of a held session."""
    answers: list[Assistant] = []
    for partial in await store.runs.partial_texts(session):
        writes: list[Write] = [RemovePartialText(partial.run)]
        if partial.text.strip():
            text = Text(partial.text)
            message = Assistant(new_id("msg"), (text,), Stop.CANCELLED, Usage(), "", "")
            writes.append(AppendMessage(session, partial.run, message, clock.now()))
            answers.append(message)
        await store.commit(*writes, fence=fence)
    return answers


PriceFunction = Callable[[str, str, Usage], float | None]
"""Dollars for a model, its provider and the usage; None if the price is unknown."""

FinalWrites = Callable[[RunEnded, Sequence[Message]], Sequence[Write]]
"""Extra writes to commit with the end of a run, from its end event and its messages."""

Publish = Callable[[Event], None]
"""Takes an event that is already durable; must not block."""

_DELTAS = (TextDelta, ReasoningDelta)
_SHOWN = (TextDelta, StreamReset)
_FAILURES = frozenset({Outcome.FAILED, Outcome.EXHAUSTED})
"""Any other turn without an answer was interrupted, by a person or with its process."""

RETENTION = timedelta(days=90)
MAX_REASON = 2_000
"""A provider may return a whole page as the reason."""


def no_final_writes(ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
    return ()


class AcceptedMessages(Struct, frozen=True):
    messages: tuple[User, ...] = ()
    recorded: tuple[str, ...] = ()  # ids of those that are in the transcript already


class Recorder(Struct, kw_only=True, eq=False):
    """Records one run's events under its lease and publishes them; the end releases the lease.

    The end completes those accepted inbox items that are in the transcript. In a turn we run
    ourselves (`own`), an answer without calls is directly followed by the end or the next
    message; it is held back until then, so that both are one commit.
    """

    store: Store
    clock: Clock
    price: PriceFunction
    scope: Scope
    lease: Lease
    partial: PartialAnswer | None
    publish: Publish
    accepted: AcceptedMessages = AcceptedMessages()
    final_writes: FinalWrites = no_final_writes
    own: bool = False
    ended: RunEnded | None = None
    """The end event as it was published."""
    _messages: list[Message] = []
    _answer: MessageAdded | None = None

    async def emit(self, event: Event) -> None:
        """Record a fact before it is published; deltas are published directly."""
        if isinstance(event, _SHOWN) and self.partial is not None:
            self.partial.add(event)
        if isinstance(event, _DELTAS) and self._answer is None:
            self.publish(event)
            return
        match event:
            case RunEnded():
                await self._end(event)
            case MessageAdded(message=Assistant(calls=[])) if self.own and self._answer is None:
                self._answer = event
            case _:
                await self._record(event)

    async def _record(self, event: Event) -> None:
        events = [event] if self._answer is None else [self._answer, event]
        writes = [write for one in events for write in self._writes(one)]
        if writes:
            # A tool does not start if the turn is cancelled meanwhile.
            with CancelScope(shield=not isinstance(event, ToolStarted)):
                await self.store.commit(*writes, fence=self.lease.fence)
            if isinstance(event, RunEnded):
                self.lease.held = False
                failpoint("recorder.after_end")
            else:
                failpoint("recorder.after_fact")
        self._answer = None
        for one in events:
            if isinstance(one, MessageAdded):
                self._messages.append(one.message)
                failpoint("recorder.after_message")
            if not isinstance(one, RunEnded):  # published by `_end`
                self.publish(one)

    async def _end(self, event: RunEnded) -> None:
        """Record the end, which releases the lease, and publish it even if that fails."""
        try:
            await self._record(event)
        except HermesError as error:
            if self._answer is not None:
                event = replace(
                    event, outcome=Outcome.FAILED, reason=error.sentence, code=error.code
                )
            if not isinstance(error, LeaseLost):
                raise
            log.warning("run %s ended after losing its session lease", event.run)
        finally:
            self.ended = event
            log.info(
                "turn %s: %s, %s, %d tokens in, %d out",
                *(event.run, event.code or event.outcome.value, plural(event.steps, "step")),
                *(event.usage.input, event.usage.output),
            )
            self.publish(event)

    def _writes(self, event: Event) -> list[Write]:
        session, run, now = self.scope.session, self.scope.run, self.clock.now()
        match event:
            case MessageAdded(message=message) if message.id not in self.accepted.recorded:
                failpoint("recorder.before_message")
                writes: list[Write] = [AppendMessage(session, run, message, now)]
                if isinstance(message, Result):
                    writes.append(SettleIntent(session, message.call))
                elif isinstance(message, Assistant):
                    if self.partial is not None:
                        writes += self.partial.closing_writes()
                    if message.usage != Usage():
                        spent = message.model, message.provider, message.usage
                        writes.append(RecordUsage(session, run, *spent, self.price(*spent), now))
                return writes
            case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
                failpoint("recorder.before_intent")
                intent = Intent(
                    call=call.id, session=session, run=run, tool=call.name, effect=effect, at=now
                )
                return [RecordIntent(intent)]
            case RunEnded():
                return self._end_writes(event)
            case _:
                return []

    def _end_writes(self, event: RunEnded) -> list[Write]:
        """The last writes of the run, which release its lease."""
        failpoint("recorder.before_end")
        messages, fence = self._messages, self.lease.fence
        if self._answer is not None:
            messages = [*messages, self._answer.message]
        keys = {*self.accepted.recorded, *(message.id for message in messages)}
        writes: list[Write] = [
            *(CompleteItem(user.id) for user in self.accepted.messages if user.id in keys),
            *self.final_writes(event, messages),
        ]
        if event.outcome in _FAILURES:
            writes += failure_writes(self.scope, event, self.clock.now())
        if self.partial is not None:
            writes += self.partial.closing_writes()
        return [*writes, ReleaseLease(fence.session, fence.generation)]


def failure_writes(scope: Scope, ended: RunEnded, at: datetime) -> list[Write]:
    """Writes to commit with the end of a run that failed."""
    failed = FailedRun(
        run=scope.run,
        session=scope.session,
        outcome=ended.outcome.value,
        reason=head_and_tail(ended.reason, MAX_REASON),
        at=at,
    )
    return [PutFailedRun(failed)]


async def prune_failures(store: Store, now: datetime) -> int:
    """Delete old failures; those turns then look interrupted."""
    return await store.runs.forget_failures(now - RETENTION)


async def failure_reasons(store: Store, session: str) -> Mapping[str, str]:
    return {failed.run: failed.reason for failed in await store.runs.failures(session)}
