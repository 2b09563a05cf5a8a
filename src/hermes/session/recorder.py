"""Record a run's events durably before they are published, and why it failed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.text import head_and_tail
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import (
    AppendMessage,
    CompleteItem,
    Intent,
    RecordIntent,
    RecordUsage,
    SettleIntent,
    Store,
    Write,
)
from hermes.schema.errors import HermesError, LeaseLost
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
from hermes.schema.messages import Assistant, Message, Result, Usage, User
from hermes.schema.scope import Scope
from hermes.schema.tools import Effect
from hermes.session.lease import Lease
from hermes.session.partial_answers import PARTIAL_KIND, PartialAnswer

log = logging.getLogger(__name__)

PriceFunction = Callable[[str, str, Usage], float | None]
"""Dollars for a model, its provider and the usage; None if the price is unknown."""

FinalWrites = Callable[[RunEnded, Sequence[Message]], Sequence[Write]]
"""Extra writes to commit with the end of a run, from its end event and its messages."""

Publish = Callable[[Event], None]
"""Takes an event that is already durable; must not block."""

_DELTAS = (TextDelta, ReasoningDelta)
_SHOWN = (TextDelta, StreamReset)
RUN_END_KIND = "run_end"
_FAILURES = frozenset({Outcome.FAILED, Outcome.EXHAUSTED})
"""Any other turn without an answer was interrupted, by a person or with its process."""

RETENTION = timedelta(days=90)
MAX_REASON = 2_000
"""A provider may return a whole page as the reason."""


async def ignore_event(event: Event) -> None:
    """For work whose events no one reads."""


def no_final_writes(ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
    return ()


class AcceptedMessages(Struct, frozen=True):
    messages: tuple[User, ...] = ()
    recorded: bool = False  # already in the transcript


class Recorder:
    """Records one run's events under its lease and publishes them; the end releases the lease.

    The end completes those accepted inbox items that are in the transcript. In a turn we run
    ourselves (`own`), an answer without calls is directly followed by the end or the next
    message; it is held back until then, so that both are one commit.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        price: PriceFunction,
        scope: Scope,
        lease: Lease,
        partial: PartialAnswer,
        publish: Publish,
        accepted: AcceptedMessages = AcceptedMessages(),  # noqa: B008 - a frozen value
        final_writes: FinalWrites = no_final_writes,
        own: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._price = price
        self._scope = scope
        self._lease = lease
        self._partial = partial
        self._publish = publish
        self._accepted = accepted
        self._final_writes = final_writes
        self._own = own
        self._recorded = tuple(user.id for user in accepted.messages) if accepted.recorded else ()
        self._messages: list[Message] = []
        self._answer: MessageAdded | None = None
        self.ended: RunEnded | None = None
        """The end event as it was published."""

    async def emit(self, event: Event) -> None:
        """Record a fact before it is published; deltas are published directly."""
        if isinstance(event, _SHOWN):
            self._partial.add(event)
        if isinstance(event, _DELTAS) and self._answer is None:
            self._publish(event)
            return
        match event:
            case RunEnded():
                await self._end(event)
            case MessageAdded(message=Assistant(calls=[])) if self._own and self._answer is None:
                self._answer = event
            case _:
                await self._record(event)

    async def _record(self, event: Event) -> None:
        is_recorded = isinstance(event, MessageAdded) and event.message.id in self._recorded
        writes = self._answer_writes() + ([] if is_recorded else self._writes(event))
        if writes:
            await self._store.commit(*writes, fence=self._lease.fence)
            failpoint("recorder.after_fact")
        self._forward_answer()
        self._forward(event)

    async def _end(self, event: RunEnded) -> None:
        try:
            await self._write_end(event)
            self._forward_answer()
        except HermesError as error:
            if self._answer is not None:
                self._answer = None
                event = replace(
                    event, outcome=Outcome.FAILED, reason=error.sentence, code=error.code
                )
            if not isinstance(error, LeaseLost):
                raise
            log.warning("run %s ended after losing its session lease", event.run)
        finally:
            # The end is published even if nothing can be written any more.
            self.ended = event
            self._publish(event)

    async def _write_end(self, event: RunEnded) -> None:
        """Commit the last writes and release the lease with them."""
        said = self._messages if self._answer is None else [*self._messages, self._answer.message]
        keys = {*self._recorded, *(message.id for message in said)}
        completed = [CompleteItem(user.id) for user in self._accepted.messages if user.id in keys]
        failpoint("recorder.before_end")
        await self._store.commit(
            *self._answer_writes(),
            *completed,
            *self._final_writes(event, said),
            *failure_writes(self._scope, event, self._clock.now()),
            *self._partial.closing_writes(self._clock.now()),
            self._lease.release_write,
            fence=self._lease.fence,
        )
        self._lease.released = True
        failpoint("recorder.after_end")

    def _answer_writes(self) -> list[Write]:
        return [] if self._answer is None else self._writes(self._answer)

    def _forward_answer(self) -> None:
        if (answer := self._answer) is not None:
            self._answer = None
            self._forward(answer)

    def _forward(self, event: Event) -> None:
        if isinstance(event, MessageAdded):
            self._messages.append(event.message)
            failpoint("recorder.after_said")
        self._publish(event)

    def _writes(self, event: Event) -> list[Write]:
        match event:
            case MessageAdded(message=message):
                failpoint("recorder.before_said")
                return self._message(message)
            case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
                failpoint("recorder.before_intent")
                intent = Intent(
                    call=call.id,
                    session=self._scope.session,
                    run=self._scope.run,
                    tool=call.name,
                    effect=effect,
                    at=self._clock.now(),
                )
                return [RecordIntent(intent)]
            case _:
                return []

    def _message(self, message: User | Assistant | Result) -> list[Write]:
        session, run, now = self._scope.session, self._scope.run, self._clock.now()
        writes: list[Write] = [AppendMessage(session, run, message, now)]
        if isinstance(message, Result):
            writes.append(SettleIntent(session, message.call))
        elif isinstance(message, Assistant):
            writes += self._partial.closing_writes(now)
            if message.usage != Usage():
                spent = message.model, message.provider, message.usage
                writes.append(RecordUsage(session, run, *spent, self._price(*spent), now))
        return writes


def failure_writes(scope: Scope, ended: RunEnded, at: datetime) -> list[PutRecord]:
    """Writes to commit with the end of a run."""
    if ended.outcome not in _FAILURES:
        return []
    record = StateRecord(
        kind=RUN_END_KIND,
        id=scope.run,
        session=scope.session,
        state=ended.outcome.value,
        at=at,
        body=Raw(msgspec.json.encode(head_and_tail(ended.reason, MAX_REASON))),
        open=False,
    )
    return [PutRecord(record)]


async def prune_failures(store: Store, now: datetime) -> int:
    """Delete old failures; those turns then look interrupted. Also records of stored answers."""
    await store.records.forget(PARTIAL_KIND, now)
    return await store.records.forget(RUN_END_KIND, now - RETENTION)


async def failure_reasons(store: Store, session: str) -> Mapping[str, str]:
    records = await store.records.find(RUN_END_KIND, session=session)
    return {record.id: msgspec.json.decode(record.body, type=str) for record in records}
