"""Slash commands at work: a row first, then a task of the house's own, in the order of a session.

Whoever brings one waits a moment for it and no longer. What is said after it in its session waits
behind it, in a lane of its own, so that nothing overtakes it and nobody else waits.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeAlias

import anyio
import anyio.abc
import msgspec
from msgspec import Struct, field, structs

from hermes.commands.surface import BusyMode
from hermes.gateway.failure_messages import INTERNAL_ERROR
from hermes.gateway.messages import (
    COMMANDS,
    InboxMessage,
    OutboxMessage,
    inbox_item,
    outbox_post,
    read_inbox_message,
)
from hermes.kit.clock import Clock
from hermes.kit.deadline import DeadlineExceeded, run_with_timeout, sleep_unless
from hermes.kit.failpoints import failpoint
from hermes.kit.process_identity import process_id
from hermes.kit.text import one_line
from hermes.ports.store import CompleteItem, EnqueueItem, ItemStatus, QueueItem, Store, Write
from hermes.schema.errors import HermesError
from hermes.schema.messages import Media, Text, User, text_of
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

AFTER_COMMANDS = "behind"
"""The lane of what is to be said once the commands before it are done."""

COMMAND_TIMEOUT = 600.0
"""Seconds that a command may take."""

INLINE_WAIT = 1.0
"""Seconds that whoever brings a command waits for its end, so that what comes next comes next."""

TIMED_OUT = "“{line}” took too long and was cut off. It may be done in part."
STOPPED = "“{line}” was stopped. It may be done in part."
INTERRUPTED = "“{line}” was cut off and may not be done. Send it again if you still want it."

_MAX_CLAIMED = 1000
_WIDTH = 60


class SubmitMessage(Struct, frozen=True):
    """Something to put into the inbox in the person's name."""

    parts: tuple[Text | Media, ...]
    manner: BusyMode | None = None
    told: str = ""


CommandResult: TypeAlias = str | SubmitMessage


class QueuedCommand(Struct, kw_only=True, eq=False):
    """One thing to do for a `session`; what is `urgent` waits for none that came before it."""

    key: str
    session: str
    letter: InboxMessage
    work: Callable[[], Awaitable[CommandResult]]
    urgent: bool = False
    lane: str = COMMANDS
    after: Sequence[anyio.Event] = ()
    begun: float | None = None
    aside: bool = False
    failure: Exception | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    over: anyio.Event = field(default_factory=anyio.Event)

    @property
    def line(self) -> str:
        """How it is spoken of."""
        return one_line(text_of(self.letter.user), _WIDTH)


class CommandActivity(Struct, frozen=True):
    """For how many seconds something is being done, if it is, and how much waits behind it."""

    seconds: float | None = None
    waiting: int = 0


class StoppedCommands(Struct, frozen=True):
    """What a stop came to: commands that were ended, and what waited behind them."""

    running: Sequence[QueuedCommand] = ()
    waiting: int = 0


class CommandQueue:
    """`put` makes a row of a parcel, and says whether it is new."""

    def __init__(
        self, store: Store, clock: Clock, put: Callable[[QueueItem, Address], Awaitable[bool]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._put = put
        self._open: dict[str, QueuedCommand] = {}
        self._unbegun: list[QueuedCommand] = []
        self._calm = anyio.Event()
        self._closed = False
        self._group: anyio.abc.TaskGroup | None = None
        self._posted: Callable[[Address], None] = _ignore_posted
        self._wake: Callable[[str], None] = _ignore_wake

    def set_outputs(self, posted: Callable[[Address], None], wake: Callable[[str], None]) -> None:
        """Where replies are announced, and who is told that something waits for a session."""
        self._posted, self._wake = posted, wake

    async def run(self) -> None:
        """Until cut off or cancelled."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                for command in self._unbegun:
                    group.start_soon(self._run_queued, command)
                self._unbegun = []
                await anyio.sleep_forever()
        finally:
            self._group, self._closed = None, True

    async def recover(self) -> None:
        """Commands that nobody finished are told of, never done again; what waited is said."""
        for lane in (COMMANDS, AFTER_COMMANDS):
            items = await self._store.queues.claim(
                lane, None, process_id(), timedelta(0), _MAX_CLAIMED
            )
            for parcel in items:
                await self._recover_row(parcel)

    async def take(self, command: QueuedCommand) -> bool:
        """Returns once it is a row, and done unless that takes longer than a moment.

        False when it was brought before. Raises what kept its end from being written, if anything.
        """
        new = False
        # To have it in hand and to have its row must not be parted by whoever gives up waiting.
        with anyio.CancelScope(shield=True):
            new = await self._begin(command)
        if new and command.lane == COMMANDS and not self._closed:
            await sleep_unless(self._clock, INLINE_WAIT, command.over)
            if command.failure is not None:
                raise command.failure
        return new

    def has_open(self, session: str) -> bool:
        """Whether something is being done there that the next word has to wait for."""
        return any(one.session == session for one in self._open.values())

    def doing(self, session: str, letter: InboxMessage) -> CommandActivity:
        """What goes on there besides what came with the letter."""
        others = [one for one in self._of(session) if one.letter is not letter]
        begun = [one.begun for one in others if one.begun is not None]
        seconds = self._clock.monotonic() - min(begun) if begun else None
        return CommandActivity(seconds, len(others) - len(begun))

    async def stop(self, session: str, principal: str | None = None) -> StoppedCommands:
        """End what is being done there and set aside what waits; with a principal, only theirs."""
        found = [one for one in self._of(session) if principal in {None, one.letter.principal}]
        running = [one for one in found if one.begun is not None]
        waiting = [one for one in found if one.begun is None]
        for one in waiting:
            one.aside = True
        await self._store.commit(*[CompleteItem(one.key) for one in waiting])
        for one in found:
            one.scope.cancel()
        return StoppedCommands(running, len(waiting))

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    async def drain(self, seconds: float) -> None:
        """Let those that are open come to their end, for so long."""
        self._calm = anyio.Event()
        if self._open:
            await sleep_unless(self._clock, seconds, self._calm)

    def cut_off(self) -> None:
        """Wait for none any longer; their rows tell of them after the next start."""
        self._closed = True
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def reply(self, key: str, address: Address, text: str, *writes: Write) -> None:
        """Tell a chat something, unless the key was used before, together with other writes."""
        reply = OutboxMessage(address=address, text=text, at=self._clock.now())
        more = [outbox_post(key, reply)] if text.strip() else []
        await self._store.commit(*writes, *more)
        self._posted(address)

    def _of(self, session: str) -> list[QueuedCommand]:
        return [one for one in self._open.values() if one.session == session and not one.urgent]

    async def _begin(self, command: QueuedCommand) -> bool:
        key, parcel = command.key, _queue_item(command)
        mine = self._open.setdefault(key, command) is command
        earlier = [one for one in self._open.values() if one.session == command.session]
        if not command.urgent:
            command.after = [one.over for one in earlier if one is not command]
        try:
            new = await self._put(parcel, command.letter.address)
        except BaseException:
            self._forget(command)
            raise
        if new:
            self._open[key] = command
            self._start(command)
        elif mine:
            self._forget(command)
            await self._recover_row(parcel)
        return new

    def _start(self, command: QueuedCommand) -> None:
        if self._group is None:
            self._unbegun.append(command)
        else:
            self._group.start_soon(self._run_queued, command)

    def _forget(self, command: QueuedCommand) -> None:
        if self._open.get(command.key) is command:
            del self._open[command.key]
        command.over.set()
        if not self._open:
            self._calm.set()

    async def _run_queued(self, command: QueuedCommand) -> None:
        try:
            await self._run_and_reply(command)
        except Exception as error:
            # Its row tells of it later; whoever still waits for it hears it now.
            log.exception("the end of %s could not be written", command.line)
            command.failure = error
        finally:
            self._forget(command)

    async def _run_and_reply(self, command: QueuedCommand) -> None:
        answer: CommandResult = STOPPED.format(line=command.line)
        with command.scope:
            for one in command.after:
                await one.wait()
            if not command.aside:
                command.begun = self._clock.monotonic()
                answer = await self._answer(command)
        if command.aside:
            return
        failpoint("commands.ran")
        if isinstance(answer, SubmitMessage):
            await self._say(command, answer)
        else:
            await self.reply(
                f"{command.key}:reply", command.letter.address, answer, CompleteItem(command.key)
            )
        failpoint("commands.replied")

    async def _answer(self, command: QueuedCommand) -> CommandResult:
        failpoint("commands.put")
        try:
            return await run_with_timeout(self._clock, COMMAND_TIMEOUT, command.work)
        except HermesError as error:
            return error.sentence
        except DeadlineExceeded:
            log.warning("the command %s was cut off after %g s", command.line, COMMAND_TIMEOUT)
            return TIMED_OUT.format(line=command.line)
        except Exception:
            log.exception("the command %s broke", command.line)
            return INTERNAL_ERROR

    async def _say(self, command: QueuedCommand, say: SubmitMessage) -> None:
        key, letter = command.key, command.letter
        user = User(letter.user.id, say.parts, letter.user.trust)
        said = structs.replace(letter, user=user, manner=say.manner)
        post = EnqueueItem(inbox_item(f"{key}:said", command.session, said))
        await self.reply(f"{key}:reply", letter.address, say.told, post, CompleteItem(key))
        self._wake(command.session)

    async def _recover_row(self, parcel: QueueItem) -> None:
        """Unless somebody has it in hand, or it was done."""
        if parcel.key in self._open:
            return
        fate, _ = await self._store.queues.fate(parcel.key)
        if fate is not ItemStatus.WAITING:
            return
        failpoint("commands.before_give_back")
        await self._give_back(parcel)
        failpoint("commands.after_give_back")

    async def _give_back(self, parcel: QueueItem) -> None:
        try:
            letter = read_inbox_message(parcel)
        except msgspec.DecodeError as error:
            await self._store.queues.park(parcel.key, f"It cannot be read: {error}")
            return
        if parcel.lane == AFTER_COMMANDS:
            post = EnqueueItem(inbox_item(f"{parcel.key}:said", parcel.topic, letter))
            await self._store.commit(post, CompleteItem(parcel.key))
            self._wake(parcel.topic)
            return
        text = INTERRUPTED.format(line=one_line(text_of(letter.user), _WIDTH))
        await self.reply(f"{parcel.key}:reply", letter.address, text, CompleteItem(parcel.key))


def _queue_item(command: QueuedCommand) -> QueueItem:
    return inbox_item(command.key, command.session, command.letter, command.lane)


def _ignore_posted(address: Address) -> None:
    log.debug("nobody delivers to %s", address)


def _ignore_wake(session: str) -> None:
    log.debug("nobody is woken for %s", session)
