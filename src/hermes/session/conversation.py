"""One person's conversation with the agent: submit, steer, retry, undo, branch, resume."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial, reduce
from itertools import chain
from typing import TypeAlias

import anyio
from msgspec import UNSET, Struct, field, structs

from hermes.agent.answers import nudge
from hermes.agent.history import has_content, join_users
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id, new_session_id
from hermes.ports.store import (
    AppendMessage,
    ChangeSession,
    CompleteItem,
    EnqueueItem,
    HideMessages,
    OpenSession,
    SessionArchive,
    Store,
    Write,
)
from hermes.ports.turn import Emit
from hermes.schema.errors import NotFound, SessionBusy, UsageError
from hermes.schema.events import Event, Outcome, RunEnded, RunStarted
from hermes.schema.messages import Assistant, Media, Message, Text, Trust, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import (
    ModelUsage,
    Session,
    SessionChange,
    StoredMessage,
    TranscriptTail,
    continued_from,
)
from hermes.session.followed_run import RunReading
from hermes.session.lease import Lease
from hermes.session.recap import is_question
from hermes.session.recorder import failure_reasons
from hermes.session.runner import Runner
from hermes.session.turn_request import SteeringQueue, TurnRequest, inbox_item


class SessionOptions(Struct, frozen=True, kw_only=True):
    """Properties of the sessions and turns that a conversation starts."""

    source: str = "cli"
    key: str = ""  # the session key of a chat
    cwd: str = ""
    principal: str = OWNER
    model: str = ""
    provider: str = ""
    attended: bool = False  # someone can answer approval requests
    yolo: bool = False  # approve everything
    async_delivery: bool = True  # results that arrive after a turn can be delivered
    refresh: bool = True  # read the session again after a turn


MessageParts: TypeAlias = Sequence[Text | Media]
ExpandReferences: TypeAlias = Callable[[Session, MessageParts], Awaitable[MessageParts]]
"""Expands references in a message, such as attached files."""


async def unchanged_parts(session: Session, parts: MessageParts) -> MessageParts:
    return parts


async def copy_session(
    store: Store,
    runner: Runner,
    lease: Lease,
    copy: Session,
    *,
    client_calls: bool = False,
    last: str = "",
) -> list[Write]:
    """Return the writes that create `copy` with the transcript of the leased session.

    The transcript ends with the answer whose id is `last`, if one is given.
    Every call gets a result first, as only the old session knows what became of lost calls. With
    `client_calls`, calls that have not started may be run by a client that still returns results.
    """
    archive = store.archive_for(copy.principal)
    messages = [row.message for row in await archive.messages(lease.fence.session)]
    await runner.close_calls(lease, messages, started_only=client_calls)
    rows = await archive.messages(lease.fence.session)
    if last:
        rows = _rows_until(rows, last)
    return [
        OpenSession(copy),
        *(AppendMessage(copy.id, row.run, row.message, row.at) for row in rows),
    ]


def _rows_until(rows: Sequence[StoredMessage], last: str) -> Sequence[StoredMessage]:
    for number, row in enumerate(rows):
        if row.message.id != last:
            continue
        if not isinstance(row.message, Assistant) or row.message.calls:
            raise UsageError("A branch can only begin after a finished answer.")
        return rows[: number + 1]
    raise UsageError("That message is no longer part of this session.")


class Conversation:
    """Holds the current session, which is stored with its first message, not before."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        runner: Runner,
        options: SessionOptions,
        expand: ExpandReferences = unchanged_parts,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._options = options
        self._expand = expand
        self._scope: anyio.CancelScope | None = None
        self._steering: SteeringQueue | None = None
        self._replaces: int | None = None
        self._new = True
        self.session = self._new_session()

    @cached_property
    def archive(self) -> SessionArchive:
        """The sessions that this conversation can continue."""
        return self._store.archive_for(self._options.principal)

    @property
    def started(self) -> bool:
        return not self._new

    def now(self) -> datetime:
        return self._clock.now()

    @property
    def running(self) -> bool:
        """Whether this conversation is running a turn."""
        return self._scope is not None

    async def is_running(self, session: str = "") -> bool:
        """Whether any process is running a turn of this session (default: the current one)."""
        return await self._store.leases.held(session or self.session.id)

    async def failure_reasons(self, session: str = "") -> Mapping[str, str]:
        """Runs that failed without an answer and were not interrupted, with their reasons."""
        return await failure_reasons(self._store, session or self.session.id)

    async def submit(
        self, parts: MessageParts | None, emit: Emit, *, message_id: str = ""
    ) -> Outcome:
        """Run one turn and pass its events to `emit`; `interrupt` ends it.

        With None, the turn handles follow-ups that arrived in the session. `message_id` is that of
        a message that was stored by `queue`. Raises `SessionBusy` while another turn of this
        session runs, here or elsewhere.
        """
        message = nudge("news") if parts is None else await self._message(parts, message_id)
        self._check_not_running()
        steering = self._steering = SteeringQueue(self._store, self.session.id)
        scope = self._scope = anyio.CancelScope()
        request = TurnRequest(
            session=self.session,
            message=message,
            new=self._new,
            replaces_from=self._replaces,
            attended=self._options.attended,
            yolo=self._options.yolo,
            async_delivery=self._options.async_delivery,
        )
        self._replaces = None
        reader = _ConversationReader(steering, emit)
        reading = RunReading(reader, self._runner.bus, request.run)
        turn = partial(self._runner.run, request, reading, steer=steering.take)
        try:
            await reading.follow(turn, scope)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await reader.flush()
            raise
        finally:
            self._scope = self._steering = None
            self._new = self._new and not reading.started
            with anyio.CancelScope(shield=True):
                await steering.end()
                if self._options.refresh:
                    await self._reload()
        return Outcome.CANCELLED if reading.ended is None else reading.ended.outcome

    async def queue(self, parts: MessageParts) -> str:
        """Store a message for the next turn of this session; returns its id."""
        message = await self._message(parts)
        await self._store.commit(EnqueueItem(inbox_item(message, self.session.id)))
        return message.id

    async def _message(self, parts: MessageParts, message_id: str = "") -> User:
        message = User(message_id or new_id("msg"), tuple(parts), Trust.OWNER)
        if not has_content(message):
            raise UsageError("There is nothing to answer.", hint="Send a message first.")
        return structs.replace(message, parts=tuple(await self._expand(self.session, parts)))

    async def steer(self, message_id: str, text: str) -> bool:
        """Send a message to the running turn, under an id chosen by the caller.

        Returns False if the turn cannot take it any more. A message has been received once it is
        emitted as `MessageAdded`; if that does not happen by the end of the turn, the caller keeps
        it.
        """
        steering = self._steering
        if steering is None or not text.strip():
            return False
        parts = await self._expand(self.session, (Text(text),))
        return await steering.add(User(message_id, tuple(parts), Trust.OWNER))

    def keep_for_next_turn(self) -> None:
        """Leave steering messages not yet taken to the next turn, because their sender is gone."""
        if self._steering is not None:
            self._steering.keep_for_next_turn()

    def interrupt(self) -> bool:
        """End the running turn; False if there is none."""
        if self._scope is None:
            return False
        self._scope.cancel()
        return True

    async def store_session(self) -> None:
        """Store the session before its first message; a running turn does so itself."""
        if self._new and not self.running:
            await self._store.commit(OpenSession(self.session))
            self._new = False

    def start_new(self) -> None:
        self._set_session(self._new_session(), new=True)

    async def resume(self, name: str) -> Session:
        self._set_session(await self.archive.find(name), new=False)
        return self.session

    async def resume_latest(self, source: str | None = None) -> Session:
        latest = await self.archive.latest(source)
        if latest is None:
            raise NotFound("There is no session to continue yet.", hint="Just start writing.")
        return await self.resume(latest.id)

    async def exists(self, session: str) -> bool:
        try:
            await self.archive.get(session)
        except NotFound:
            return False
        return True

    async def begin_with(self, messages: Sequence[Message], session: str | None = None) -> None:
        """Start a session, optionally with a given id, from an existing transcript."""
        row = self._new_session()
        if session:
            row = structs.replace(row, id=session)
        if messages:
            appends = [AppendMessage(row.id, "", message, row.started_at) for message in messages]
            await self._store.commit(OpenSession(row), *appends)
        self._set_session(row, new=not messages)

    async def branch(self, title: str = "", last: str = "") -> Session:
        """Continue in a copy of this session; the original is unchanged.

        The copy ends with the answer whose id is `last`, if one is given. The copy takes over the
        session key of a chat, which has only one open session.
        """
        self._check_not_running()
        old = self.session
        async with self._runner.holding(old.id) as lease:
            if not await self.messages():
                raise UsageError("There is nothing to branch from.", hint="Send a message first.")
            copy = structs.replace(
                continued_from(self._new_session(), old),
                source=old.source,
                principal=old.principal,
                key=old.key,
                title=title,
            )
            writes = await copy_session(self._store, self._runner, lease, copy, last=last)
            if old.key:
                ended = SessionChange(ended_at=self._clock.now(), end_reason="branched")
                writes.append(ChangeSession(old.id, ended))
            await self._store.commit(*writes, fence=lease.fence)
        self._set_session(copy, new=False)
        return copy

    async def messages(self) -> Sequence[StoredMessage]:
        return [] if self._new else await self.archive.messages(self.session.id)

    async def tail(self, limit: int, size: int) -> TranscriptTail:
        return (
            TranscriptTail() if self._new else await self.archive.tail(self.session.id, limit, size)
        )

    async def usage(self) -> Sequence[ModelUsage]:
        return [] if self._new else await self.archive.usage(self.session.id)

    async def undo(self, turns: int = 1) -> list[User]:
        """Undo the last turns; returns the question of each, oldest first."""
        self._check_not_running()
        async with self._runner.holding(self.session.id) as lease:
            undone = await self._last_turns(turns)
            await self._hide(undone[0][0].seq, list(chain.from_iterable(undone)), lease)
        return [_joined_question(rows) for rows in undone]

    async def rewind(self, seq: int) -> int:
        """Hide the messages starting at `seq`; returns how many turns started there."""
        self._check_not_running()
        async with self._runner.holding(self.session.id) as lease:
            rows = filter(is_question, await self.messages())
            questions = [row for row in rows if row.seq >= seq]
            await self._hide(seq, questions, lease)
        return len({row.run or row.seq for row in questions})

    async def _hide(self, seq: int, questions: Sequence[StoredMessage], lease: Lease) -> None:
        # Hidden messages must not be recovered as unanswered.
        settled = [CompleteItem(row.message.id) for row in questions]
        hidden = HideMessages(self.session.id, seq)
        await self._store.commit(hidden, *settled, fence=lease.fence)
        self._replaces = None

    async def replace_last(self) -> User:
        """The last question; the next message replaces it and its answer."""
        (rows,) = await self._last_turns(1)
        self._replaces = rows[0].seq
        return _joined_question(rows)

    async def replace_from(self, message_id: str) -> User:
        """That question; the next message replaces it and everything after it."""
        for row in filter(is_question, await self.messages()):
            if row.message.id == message_id and isinstance(row.message, User):
                self._replaces = row.seq
                return row.message
        raise UsageError("That message is no longer part of this session.")

    async def retry(self, emit: Emit) -> Outcome:
        """Ask the last question again, as if it had not been answered."""
        return await self.submit((await self.replace_last()).parts, emit)

    async def change(self, change: SessionChange) -> None:
        """Change the session, or what will be stored with its first message."""
        if not self._new:
            await self._store.commit(ChangeSession(self.session.id, change))
            await self._reload()
            return
        if change.title:
            await self._check_title(change.title)
        fields = structs.asdict(change).items()
        changed = {name: value for name, value in fields if value is not UNSET}
        self.session = structs.replace(self.session, **changed)

    async def _last_turns(self, count: int) -> list[list[StoredMessage]]:
        turns: list[list[StoredMessage]] = []
        for row in filter(is_question, await self.messages()):
            if turns and row.run and turns[-1][0].run == row.run:
                turns[-1].append(row)
            else:
                turns.append([row])
        if count < 1 or not turns:
            raise UsageError("There is nothing to undo.")
        return turns[-count:]

    async def _check_title(self, title: str) -> None:
        try:
            found = await self.archive.find(title)
        except NotFound:
            return
        if found.title == title:
            raise UsageError(
                f"Another session already has the title {title!r}.", hint="Choose another title."
            )

    def _check_not_running(self) -> None:
        if self._scope is not None:
            raise SessionBusy(
                f"Session {self.session.id} is in the middle of a turn.",
                hint="Wait for it to finish, or stop it with /stop.",
            )

    def _set_session(self, session: Session, *, new: bool) -> None:
        self.session = session
        self._new = new
        self._replaces = None

    async def _reload(self) -> None:
        try:
            self.session = await self.archive.get(self.session.id)
        except NotFound:
            return
        self._new = False

    def _new_session(self) -> Session:
        now, options = self._clock.now(), self._options
        return Session(
            id=new_session_id(now),
            started_at=now,
            source=options.source,
            key=options.key,
            principal=options.principal,
            cwd=options.cwd,
            model=options.model,
            provider=options.provider,
        )


class _ConversationReader(Struct):
    """Emits the events of a turn, which takes messages once it has started."""

    steering: SteeringQueue
    emit: Emit
    events: deque[Event] = field(default_factory=deque)

    def on_event(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.steering.started.set()
        self.events.append(event)

    async def flush(self) -> None:
        while self.events:
            await self.emit(self.events.popleft())

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        return self.steering.final_writes()


def _joined_question(rows: Sequence[StoredMessage]) -> User:
    questions = [row.message for row in rows if isinstance(row.message, User)]
    return reduce(join_users, questions)
