"""The one door for messages from chats: let in, make durable, wake, and only then acknowledge."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, tzinfo
from functools import partial
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, structs

from hermes.commands.registry import is_command
from hermes.gateway.actor_pool import ActorPool
from hermes.gateway.authorization import is_authenticated_platform
from hermes.gateway.command_queue import (
    AFTER_COMMANDS,
    CommandQueue,
    CommandResult,
    QueuedCommand,
    SubmitMessage,
)
from hermes.gateway.command_runner import IMMEDIATE_COMMANDS, CommandRunner, Shortcuts, command_name
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.messages import (
    Admitted,
    InboxMessage,
    OutboxMessage,
    Rejected,
    inbox_item,
    outbox_post,
    platform_of,
)
from hermes.gateway.questions import QuestionAnswers
from hermes.gateway.session_keys import SessionKeys
from hermes.gateway.user_limits import REFUSED, TOO_FAST, InboundLimit
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.channel import Inbound, InboundRefused
from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Requester
from hermes.session.keys import DIRECT_CHAT

log = logging.getLogger(__name__)

Authorize: TypeAlias = Callable[[Inbound], Awaitable[Admitted | Rejected]]
"""Who may speak, and in which session."""

NO_SHELL = "Commands of a shell cannot be run straight from a chat."


class Intake:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Authorize,
        actors: ActorPool,
        desk: CommandRunner,
        dead: DeadTargets,
    ) -> None:
        self._store = store
        self._clock = clock
        self._door = door
        self._actors = actors
        self._desk = desk
        self._dead = dead
        self._answers: QuestionAnswers | None = None
        self.command_queue = CommandQueue(store, clock, self._put)
        self._shortcuts = Shortcuts()
        self._inbound_limit = InboundLimit(clock)
        self._session_keys = SessionKeys(store, clock)
        self._posted: Callable[[Address], None] = _ignore_posted
        self._sign: Callable[[Inbound], None] = _no_reaction
        self._met: Callable[[Inbound], None] = _no_reaction
        self._places: Callable[[str], tuple[Address, ...]] = _no_targets
        self._brought: Callable[[Address, str], None] = _ignore_cross_post
        self._store_watch: Callable[[Address], AbstractContextManager[None]] = _no_store_watch
        self._stamp: Callable[[User], User] = without_timestamp

    def set_outputs(
        self, posted: Callable[[Address], None], sign: Callable[[Inbound], None]
    ) -> None:
        """Where replies are announced, and what gives an instant sign that a message is here."""
        self.command_queue.set_outputs(posted, self._actors.wake)
        self._posted = posted
        self._sign = sign

    def minds(self, store_watch: Callable[[Address], AbstractContextManager[None]]) -> None:
        """What watches over a message until it is stored, and tells the chat when it cannot be."""
        self._store_watch = store_watch

    def set_shortcuts(self, shortcuts: Shortcuts) -> None:
        """What else means a command."""
        self._shortcuts = shortcuts

    def stamps(self, stamp: Callable[[User], User]) -> None:
        """What puts the time before a message."""
        self._stamp = stamp

    def hears(self, answers: QuestionAnswers) -> None:
        """Who takes what is said to a question of the agent."""
        self._answers = answers

    def set_targets(
        self,
        places: Callable[[str], tuple[Address, ...]],
        brought: Callable[[Address, str], None],
        met: Callable[[Inbound], None],
    ) -> None:
        """What the names of targets mean, who is told what was brought there, and who was met."""
        self._places = places
        self._brought = brought
        self._met = met

    async def deliver(self, inbound: Inbound, door: Authorize | None = None) -> None:
        """Returns once the message is durable; a key that was seen before changes nothing.

        Raises `NotTaken` where whoever sent it is to send it again later.
        `door` is that of whoever heard it, when it was not one of our own channels.
        """
        inbound = encodable(inbound)
        if _is_for_another_bot(inbound):
            log.debug("%s is a command for somebody else", inbound.key)
            return
        key = f"{inbound.address.channel}:{inbound.key}"
        failpoint("intake.before_door")
        welcome = await (door or self._door)(inbound)
        if isinstance(welcome, Rejected):
            if welcome.reply:
                await self.command_queue.reply(f"{key}:reply", inbound.address, welcome.reply)
            return
        if await self._is_over_limit(key, welcome, inbound):
            return
        with self._store_watch(inbound.address):
            welcome = await self._with_unique_key(welcome, inbound.address)
            await self._dead.revive(inbound.address)
        self._met(inbound)
        letter = InboxMessage(
            user=User(new_id("msg"), inbound.parts, welcome.trust),
            address=inbound.address,
            asker=_asker(inbound),
            principal=welcome.principal,
            role=welcome.role,
            answer_at=self._places(inbound.answer_to) if inbound.answer_to else (),
            reply_to=inbound.reply_to,
        )
        line = self._line(letter)
        failpoint("intake.before_put")
        if inbound.verbatim:
            new = await self._pass_on(key, letter)
        elif line is not None:
            new = await self._command(key, welcome, letter, line)
        elif self._answers is not None and await self._answers.takes(welcome, letter):
            new = await self._command(key, welcome, letter, "")
        else:
            new = await self._message(key, welcome, letter)
            if new:
                self._sign(inbound)
        if new:
            self._inbound_limit.count(welcome.principal, welcome.role)
        failpoint("intake.before_ack")

    async def _message(self, key: str, welcome: Admitted, letter: InboxMessage) -> bool:
        """Whether it is new."""
        letter = structs.replace(letter, user=self._stamp(letter.user))
        if self.command_queue.has_open(welcome.key):
            return await self._behind(key, welcome, letter)
        new = await self._put(inbox_item(key, welcome.key, letter), letter.address)
        if new:
            failpoint("intake.after_put")
        # Also one that is known: who brought it may have been cut off before waking anybody.
        self._actors.wake(welcome.key, letter.address)
        return new

    async def _is_over_limit(self, key: str, welcome: Admitted, inbound: Inbound) -> bool:
        """Whether it is refused, for good; what was taken before is not."""
        wait = self._inbound_limit.wait(welcome.principal, welcome.role)
        if not wait or not await self._is_new(f"{key}:0" if inbound.verbatim else key):
            return False
        if is_authenticated_platform(platform_of(inbound.address.channel)):
            raise InboundRefused(TOO_FAST, wait=wait)
        refused = QueueItem(key=key, lane=REFUSED, topic=welcome.key, body=Raw(b"null"))
        notice = self._inbound_limit.notice(welcome.principal)
        await self.command_queue.reply(
            f"{key}:reply", inbound.address, notice, EnqueueItem(refused), CompleteItem(key)
        )
        return True

    async def _put(self, parcel: QueueItem, address: Address) -> bool:
        with self._store_watch(address):
            return await self._store.queues.put(parcel)

    async def _with_unique_key(self, welcome: Admitted, address: Address) -> Admitted:
        """With a session key that no other place has."""
        if welcome.place is None:
            return welcome
        key = await self._session_keys.assign(welcome.key, welcome.place, address)
        return structs.replace(welcome, key=key)

    @property
    def commands(self) -> int:
        """How many are being done."""
        return self.command_queue.count

    async def _command(self, key: str, welcome: Admitted, letter: InboxMessage, line: str) -> bool:
        work = partial(self._answer_to, welcome, letter, line)
        urgent = not line or command_name(line) in IMMEDIATE_COMMANDS
        return await self.command_queue.take(
            QueuedCommand(key=key, session=welcome.key, letter=letter, work=work, urgent=urgent)
        )

    async def _behind(self, key: str, welcome: Admitted, letter: InboxMessage) -> bool:
        """To be said once the commands are done that came before it."""

        async def work() -> CommandResult:
            return SubmitMessage(letter.user.parts)

        return await self.command_queue.take(
            QueuedCommand(
                key=key, session=welcome.key, letter=letter, work=work, lane=AFTER_COMMANDS
            )
        )

    def _line(self, letter: InboxMessage) -> str | None:
        """The command that is meant, when the message is one and nothing else."""
        match letter.user.parts:
            case (Text(text),):
                meant = self._shortcuts.meant(text)
                return meant.strip() if is_typed_command(meant) else None
            case _:
                return None

    async def _answer_to(self, welcome: Admitted, letter: InboxMessage, line: str) -> CommandResult:
        if self._shortcuts.is_shell_shortcut(line):
            raise UsageError(NO_SHELL, hint="Ask for it in words: then it runs behind the wall.")
        if line or self._answers is None:
            return await self._desk.run(welcome, letter, line)
        told = await self._answers.take(welcome, letter)
        # When the question is gone meanwhile, it was something to say.
        return SubmitMessage(letter.user.parts) if told is None else told

    async def _pass_on(self, key: str, letter: InboxMessage) -> bool:
        """Deliver what was said as it is. The parcels' keys let nothing through twice."""
        reply = OutboxMessage(
            address=letter.address, text=text_of(letter.user), at=self._clock.now()
        )
        new = await self._is_new(f"{key}:0")
        await self._store.commit(
            *(
                outbox_post(f"{key}:{place}", structs.replace(reply, address=address))
                for place, address in enumerate(letter.answers)
            )
        )
        for address in letter.answers:
            self._posted(address)
            if letter.answer_at and new:
                self._brought(address, reply.text)
        return new

    async def _is_new(self, key: str) -> bool:
        try:
            await self._store.queues.fate(key)
        except NotFound:
            return True
        return False


def encodable(inbound: Inbound) -> Inbound:
    """The same, with a mark in place of characters that no file can hold."""
    try:
        msgspec.json.encode(inbound)
    except UnicodeEncodeError:
        return msgspec.convert(_replaced(msgspec.to_builtins(inbound)), Inbound)
    return inbound


def _replaced(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_replaced(one) for one in cast("list[object]", value)]
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return {name: _replaced(one) for name, one in pairs}
        case _:
            return value


def is_typed_command(text: str) -> bool:
    """Whether it is a command, perhaps with the name of a bot behind that of the command."""
    return is_command(text.replace("@", " @", 1))


def _is_for_another_bot(inbound: Inbound) -> bool:
    """Where several listen, `/name@somebody` is for the one that is named."""
    if inbound.verbatim or inbound.about.chat_type == DIRECT_CHAT or inbound.about.mentions:
        return False
    match inbound.parts:
        case (Text(text),) if is_typed_command(text):
            return "@" in text.split(None, 1)[0]
        case _:
            return False


def _asker(inbound: Inbound) -> Requester:
    return Requester(
        user=inbound.sender,
        name=inbound.about.user_name,
        chat_name=inbound.about.chat_name,
        message=inbound.message or "",
    )


def _ignore_posted(address: Address) -> None:
    log.debug("nobody delivers to %s", address)


def _no_store_watch(address: Address) -> AbstractContextManager[None]:
    return nullcontext()


def _no_targets(targets: str) -> tuple[Address, ...]:
    return ()


def _ignore_cross_post(address: Address, text: str) -> None:
    log.debug("nobody is told what was brought to %s", address)


def _no_reaction(inbound: Inbound) -> None:
    log.debug("no sign for %s", inbound.key)


class MessageTimestamps:
    """In the zone of the settings; None is that of this machine."""

    def __init__(self, clock: Clock, zone: tzinfo | None = None) -> None:
        self._clock = clock
        self._zone = zone

    def __call__(self, user: User) -> User:
        stamp = format_timestamp(self._clock.now().astimezone(self._zone))
        match user.parts:
            case (Text(text), *rest):
                return structs.replace(user, parts=(Text(f"{stamp} {text}"), *rest))
            case _:
                return structs.replace(user, parts=(Text(stamp), *user.parts))


def format_timestamp(moment: datetime) -> str:
    """Such as `[Mon 2026-11-16 15:09 CET]`."""
    return f"[{moment:%a %Y-%m-%d %H:%M %Z}]"


def without_timestamp(user: User) -> User:
    return user
