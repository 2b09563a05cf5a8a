"""Record a run's events durably before they are published, and why it failed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.text import head_and_tail
from hermes.ports.run_records import FailedRun, PutFailedRun
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
from hermes.session.partial_answers import PartialAnswer

log = logging.getLogger(__name__)

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
        partial: PartialAnswer | None,
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
        if isinstance(event, _SHOWN) and self._partial is not None:
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
        events = [event] if self._answer is None else [self._answer, event]
        writes = [write for one in events for write in self._writes(one)]
        if writes:
            await self._store.commit(*writes, fence=self._lease.fence)
            failpoint("recorder.after_fact")
        self._answer = None
        self._forward(events)

    async def _end(self, event: RunEnded) -> None:
        answer, self._answer = self._answer, None
        try:
            await self._write_end(event, answer)
            if answer is not None:
                self._forward([answer])
        except HermesError as error:
            if answer is not None:
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

    async def _write_end(self, event: RunEnded, answer: MessageAdded | None) -> None:
        """Commit the last writes and release the lease with them."""
        said = self._messages if answer is None else [*self._messages, answer.message]
        keys = {*self._recorded, *(message.id for message in said)}
        completed = [CompleteItem(user.id) for user in self._accepted.messages if user.id in keys]
        failures: Sequence[Write] = ()
        if event.outcome in _FAILURES:
            failures = failure_writes(self._scope, event, self._clock.now())
        failpoint("recorder.before_end")
        await self._store.commit(
            *([] if answer is None else self._writes(answer)),
            *completed,
            *self._final_writes(event, said),
            *failures,
            *self._closing_writes(),
            self._lease.release_write,
            fence=self._lease.fence,
        )
        self._lease.released = True
        failpoint("recorder.after_end")

    def _forward(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, MessageAdded):
                self._messages.append(event.message)
                failpoint("recorder.after_said")
            self._publish(event)

    def _writes(self, event: Event) -> list[Write]:
        session, run, now = self._scope.session, self._scope.run, self._clock.now()
        match event:
            case MessageAdded(message=message) if message.id not in self._recorded:
                failpoint("recorder.before_said")
                writes: list[Write] = [AppendMessage(session, run, message, now)]
                if isinstance(message, Result):
                    writes.append(SettleIntent(session, message.call))
                elif isinstance(message, Assistant):
                    writes += self._closing_writes()
                    writes += self._usage(message, now)
                return writes
            case ToolStarted(call=call, effect=effect) if effect is not Effect.READ:
                failpoint("recorder.before_intent")
                intent = Intent(
                    call=call.id, session=session, run=run, tool=call.name, effect=effect, at=now
                )
                return [RecordIntent(intent)]
            case _:
                return []

    def _closing_writes(self) -> list[Write]:
        return [] if self._partial is None else self._partial.closing_writes()

    def _usage(self, message: Assistant, now: datetime) -> list[Write]:
        if message.usage == Usage():
            return []
        spent = message.model, message.provider, message.usage
        session, run = self._scope.session, self._scope.run
        return [RecordUsage(session, run, *spent, self._price(*spent), now)]


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
