"""Run slash commands as background tasks, stored first and ordered per session.

The caller waits only briefly for a command. Messages sent after it wait in a separate queue, so
that they stay in order without blocking other sessions.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import anyio
import anyio.abc
import msgspec
from msgspec import Raw, Struct, field, structs

from hermes.gateway.failure_messages import INTERNAL_ERROR
from hermes.gateway.messages import (
    COMMANDS,
    INBOX,
    InboxMessage,
    OutboxMessage,
    inbox_item,
    outbox_post,
    read_inbox_message,
    wake_outbox,
)
from hermes.gateway.notices import OutageNotices
from hermes.gateway.transcripts import Transcripts
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.tasks import DeadlineExceeded, run_with_timeout, sleep_unless
from hermes.kit.text import one_line
from hermes.ports.bus import Bus
from hermes.ports.store import (
    AmendItem,
    CompleteItem,
    EnqueueItem,
    ItemStatus,
    QueueItem,
    Store,
    Write,
)
from hermes.schema.errors import HermesError, LeaseLost
from hermes.schema.messages import Media, Text, User, text_of
from hermes.schema.scope import Address
from hermes.schema.terminal import BusyMode

log = logging.getLogger(__name__)

AFTER_COMMANDS = "after_commands"
"""Queue of messages to submit once earlier commands are done, or recordings transcribed."""

COMMAND_TIMEOUT = 600.0
"""Maximum seconds a command may take."""

INLINE_WAIT = 1.0
"""Seconds the caller waits for a command, so that quick ones finish in order."""

TIMED_OUT = "“{line}” timed out. It may be partly done."
STOPPED = "“{line}” was stopped. It may be partly done."
INTERRUPTED = "“{line}” was interrupted and may not be done. Send it again if you still need it."

_MAX_CLAIMED = 1000
_WIDTH = 60


class SubmitMessage(Struct, frozen=True):
    """A message to put into the inbox on the user's behalf."""

    parts: tuple[Text | Media, ...]
    busy_mode: BusyMode | None = None
    notice: str = ""


CommandResult: TypeAlias = str | SubmitMessage


class QueuedCommand(Struct, kw_only=True, eq=False):
    """One command or message of a `session`; `urgent` ones do not wait for earlier ones."""

    key: str
    session: str
    message: InboxMessage
    work: Callable[[], Awaitable[CommandResult]]
    urgent: bool = False
    queue: str = COMMANDS
    after: Sequence[anyio.Event] = ()
    started: float | None = None
    dropped: bool = False
    failure: Exception | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    finished: anyio.Event = field(default_factory=anyio.Event)

    @property
    def label(self) -> str:
        """Short text for messages and logs."""
        return one_line(text_of(self.message.user), _WIDTH)


class CommandActivity(Struct, frozen=True):
    """Seconds the running command has taken (None if none), and how many wait."""

    seconds: float | None = None
    waiting: int = 0


class StoppedCommands(Struct, frozen=True):
    """Result of a stop: cancelled commands and the number of dropped ones."""

    running: Sequence[QueuedCommand] = ()
    waiting: int = 0


class CommandQueue:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        outages: OutageNotices,
        transcripts: Transcripts,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._outages = outages
        self._transcripts = transcripts
        self._holder = store.workers.own
        self.open: dict[str, QueuedCommand] = {}
        """Commands and messages that are not done, by key."""
        self._not_started: list[QueuedCommand] = []
        self._idle = anyio.Event()
        self._closed = False
        self._group: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                for command in self._not_started:
                    group.start_soon(self._run_queued, command)
                self._not_started = []
                await anyio.sleep_forever()
        finally:
            self._group, self._closed = None, True

    async def recover(self) -> None:
        """Report commands that a dead worker left, without repeating them; submit messages."""
        for queue in (COMMANDS, AFTER_COMMANDS):
            for item in await self._store.queues.claim(
                queue, None, self._holder, None, _MAX_CLAIMED
            ):
                await self._recover_row(item)

    async def submit(self, command: QueuedCommand) -> bool:
        """Store the command and wait briefly for it; return False if it is already known.

        Raises the error that prevented storing its result, if any.
        """
        new = False
        # Shielded: a cancelled caller must not separate the row from the in-memory entry.
        with anyio.CancelScope(shield=True):
            new = await self._begin(command)
        if new and command.queue == COMMANDS and not self._closed:
            await sleep_unless(self._clock, INLINE_WAIT, command.finished)
            if command.failure is not None:
                raise command.failure
        return new

    async def submit_message(self, key: str, session: str, message: InboxMessage) -> bool:
        """Store a message that waits for commands or for the text of its recordings."""
        return await self.submit(self._waiting(key, session, message))

    def has_open(self, session: str) -> bool:
        """Whether the next message of the session must wait for a command."""
        return any(command.session == session for command in self.open.values())

    def activity(self, session: str, message: InboxMessage) -> CommandActivity:
        """Return what is going on in the session apart from this message."""
        others = [
            command for command in self._commands_of(session) if command.message is not message
        ]
        started = [command.started for command in others if command.started is not None]
        seconds = self._clock.monotonic() - min(started) if started else None
        return CommandActivity(seconds, len(others) - len(started))

    async def stop(self, session: str, principal: str | None = None) -> StoppedCommands:
        """Cancel running commands and drop waiting ones, optionally only one principal's."""
        found = [
            command
            for command in self._commands_of(session)
            if principal in {None, command.message.principal}
        ]
        running = [command for command in found if command.started is not None]
        waiting = [command for command in found if command.started is None]
        for command in waiting:
            command.dropped = True
        await self._store.commit(*[CompleteItem(command.key) for command in waiting])
        for command in found:
            command.scope.cancel()
        return StoppedCommands(running, len(waiting))

    @property
    def count(self) -> int:
        return len(self.open)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for open commands to finish."""
        self._idle = anyio.Event()
        if self.open:
            await sleep_unless(self._clock, seconds, self._idle)

    def cancel_all(self) -> None:
        """Stop waiting for open commands; the next start reports them."""
        self._closed = True
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def reply(self, key: str, address: Address, text: str, *writes: Write) -> None:
        """Reply to a chat together with other writes; a key used before changes nothing."""
        reply = OutboxMessage(address=address, text=text, at=self._clock.now())
        more = [outbox_post(key, reply)] if text.strip() else []
        await self._store.commit(*writes, *more)
        wake_outbox(self._bus, address)

    def _commands_of(self, session: str) -> list[QueuedCommand]:
        return [
            command
            for command in self.open.values()
            if command.session == session and not command.urgent
        ]

    async def _begin(self, command: QueuedCommand) -> bool:
        key = command.key
        item = inbox_item(key, command.session, command.message, command.queue)
        mine = self.open.setdefault(key, command) is command
        earlier = [
            queued_command
            for queued_command in self.open.values()
            if queued_command.session == command.session
        ]
        if not command.urgent:
            command.after = [
                queued_command.finished
                for queued_command in earlier
                if queued_command is not command
            ]
        try:
            with self._outages.store_watch(command.message.address):
                new = await self._store.queues.put(item, self._holder)
        except BaseException:
            self._remove(command)
            raise
        if new:
            self._start(command)
        elif mine:
            self._remove(command)
            await self.recover()
        return new

    def _waiting(self, key: str, session: str, message: InboxMessage) -> QueuedCommand:
        async def work() -> CommandResult:
            rest = message
            while rest.recordings:
                rest = await self._transcripts.add_next(rest)
                if rest.recordings:
                    await self._keep(key, rest)
            notice = self._transcripts.echo(rest) if message.recordings else ""
            return SubmitMessage(rest.user.parts, notice=notice)

        return QueuedCommand(
            key=key, session=session, message=message, work=work, queue=AFTER_COMMANDS
        )

    async def _keep(self, key: str, message: InboxMessage) -> None:
        """Store the transcripts so far, so that they are not paid for again after a crash."""
        try:
            await self._store.commit(
                AmendItem(key, Raw(msgspec.json.encode(message)), self._holder)
            )
        except HermesError as error:
            log.warning("the transcripts of %s are not stored yet: %s", key, error)

    def _start(self, command: QueuedCommand) -> None:
        self.open[command.key] = command
        if self._group is None:
            self._not_started.append(command)
        else:
            self._group.start_soon(self._run_queued, command)

    def _remove(self, command: QueuedCommand) -> None:
        if self.open.get(command.key) is command:
            del self.open[command.key]
        command.finished.set()
        if not self.open:
            self._idle.set()

    async def _run_queued(self, command: QueuedCommand) -> None:
        try:
            await self._run_and_reply(command)
        except LeaseLost as error:
            log.warning("%s", error)
        except Exception as error:
            # The row is reported later; a caller still waiting gets the error now.
            log.exception("the result of %s could not be stored", command.label)
            command.failure = error
        finally:
            self._remove(command)

    async def _run_and_reply(self, command: QueuedCommand) -> None:
        answer: CommandResult = STOPPED.format(line=command.label)
        with command.scope:
            for event in command.after:
                await event.wait()
            if not command.dropped:
                command.started = self._clock.monotonic()
                answer = await self._answer(command)
        if command.dropped:
            return
        failpoint("commands.ran")
        if isinstance(answer, SubmitMessage):
            await self._submit_message(command, answer)
        else:
            key, address = command.key, command.message.address
            await self.reply(f"{key}:reply", address, answer, CompleteItem(key, self._holder))
        failpoint("commands.replied")

    async def _answer(self, command: QueuedCommand) -> CommandResult:
        failpoint("commands.stored")
        try:
            return await run_with_timeout(self._clock, COMMAND_TIMEOUT, command.work)
        except HermesError as error:
            return error.sentence
        except DeadlineExceeded:
            log.warning("command %s timed out after %g s", command.label, COMMAND_TIMEOUT)
            return TIMED_OUT.format(line=command.label)
        except Exception:
            log.exception("command %s failed", command.label)
            return INTERNAL_ERROR

    async def _submit_message(self, command: QueuedCommand, submitted: SubmitMessage) -> None:
        key, message = command.key, command.message
        user = User(message.user.id, submitted.parts, message.user.trust)
        new_message = structs.replace(
            message, user=user, busy_mode=submitted.busy_mode, recordings=()
        )
        post = EnqueueItem(inbox_item(f"{key}:said", command.session, new_message))
        await self.reply(
            f"{key}:reply", message.address, submitted.notice, post, CompleteItem(key, self._holder)
        )
        self._bus.wake(INBOX, command.session)

    async def _recover_row(self, item: QueueItem) -> None:
        """Recover the row unless it is in progress here or already completed."""
        if item.key in self.open:
            return
        status, _ = await self._store.queues.status(item.key)
        if status is not ItemStatus.WAITING:
            return
        failpoint("commands.before_release")
        try:
            await self._report_unfinished(item)
        except LeaseLost as error:
            log.info("%s", error)
        failpoint("commands.after_release")

    async def _report_unfinished(self, item: QueueItem) -> None:
        try:
            message = read_inbox_message(item.body)
        except msgspec.DecodeError as error:
            await self._store.queues.park(item.key, f"It cannot be decoded: {error}", self._holder)
            return
        done = CompleteItem(item.key, self._holder)
        if item.queue == AFTER_COMMANDS and (message.recordings or self.has_open(item.topic)):
            waiting = self._waiting(item.key, item.topic, message)
            earlier = [command for command in self.open.values() if command.session == item.topic]
            waiting.after = [command.finished for command in earlier]
            self._start(waiting)
            return
        if item.queue == AFTER_COMMANDS:
            post = EnqueueItem(inbox_item(f"{item.key}:said", item.topic, message))
            await self._store.commit(post, done)
            self._bus.wake(INBOX, item.topic)
            return
        text = INTERRUPTED.format(line=one_line(text_of(message.user), _WIDTH))
        await self.reply(f"{item.key}:reply", message.address, text, done)
