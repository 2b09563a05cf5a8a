"""Accept chat messages: authorize, store, wake the session, then acknowledge."""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import TypeAlias, assert_never, cast

import msgspec
from msgspec import Raw, structs

from hermes.commands.registry import is_command
from hermes.gateway.command_queue import (
    CommandQueue,
    CommandResult,
    QueuedCommand,
    SubmitMessage,
)
from hermes.gateway.command_runner import IMMEDIATE_COMMANDS, CommandRunner, Shortcuts, command_name
from hermes.gateway.cross_post import CrossPoster
from hermes.gateway.delivery_rules import DeadTargets
from hermes.gateway.message_changes import reaction_note
from hermes.gateway.messages import (
    INBOX,
    Admitted,
    InboxKind,
    InboxMessage,
    OutboxMessage,
    Rejected,
    inbox_item,
    outbox_post,
    wake_outbox,
)
from hermes.gateway.notices import OutageNotices
from hermes.gateway.questions import QuestionAnswers
from hermes.gateway.roles import authenticated_role
from hermes.gateway.run_display import RunDisplay
from hermes.gateway.session_keys import SessionKeys
from hermes.gateway.transcripts import Transcripts
from hermes.gateway.user_limits import INBOUND_RATE, REJECTED, TOO_FAST, InboundLimit, UserRate
from hermes.kit.clock import Clock
from hermes.kit.failpoints import failpoint
from hermes.kit.ids import new_id
from hermes.ports.bus import Bus
from hermes.ports.channel import (
    ChangedReaction,
    DeletedMessage,
    EditedMessage,
    Inbound,
    InboundRefused,
    NewMessage,
    PressedButton,
    Recording,
)
from hermes.ports.jobs import JOB_CALLS, SCHEDULED_JOBS, JobCall
from hermes.ports.store import CompleteItem, EnqueueItem, QueueItem, Store
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Requester, platform_of
from hermes.session.keys import DIRECT_CHAT

log = logging.getLogger(__name__)

Authorize: TypeAlias = Callable[[Inbound], Awaitable[Admitted | Rejected]]
"""Authorizes a message and names its session."""

Change: TypeAlias = PressedButton | EditedMessage | DeletedMessage | ChangedReaction
"""What can happen to a message that is there already."""

LATE = timedelta(seconds=10)
"""A message that arrives later than this after it was written was missed, such as in an outage."""
NO_SHELL = "Shell commands cannot be run directly from a chat."


class MessageTimestamps:
    """Prefixes messages with the time in `zone`, by default the machine's time zone."""

    def __init__(self, clock: Clock, zone: tzinfo | None = None) -> None:
        self._clock = clock
        self._zone = zone

    def stamped(self, user: User, written_at: datetime | None) -> User:
        stamp = format_timestamp((written_at or self._clock.now()).astimezone(self._zone))
        match user.parts:
            case (Text(text), *rest):
                return structs.replace(user, parts=(Text(f"{stamp} {text}"), *rest))
            case _:
                return structs.replace(user, parts=(Text(stamp), *user.parts))


def format_timestamp(moment: datetime) -> str:
    return f"[{moment:%a %Y-%m-%d %H:%M %Z}]"


class Intake:
    """`resolve_targets` resolves target names; `on_contact` is called for every admitted message.

    `timestamps` prefix messages with their time, if the settings ask for it.
    `reactions_in_context` are the platforms whose reactions the model learns of.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        bus: Bus,
        authorize: Authorize,
        command_queue: CommandQueue,
        command_runner: CommandRunner,
        answers: QuestionAnswers,
        dead: DeadTargets,
        display: RunDisplay,
        outages: OutageNotices,
        cross_posts: CrossPoster,
        shortcuts: Shortcuts,
        timestamps: MessageTimestamps | None,
        resolve_targets: Callable[[str], tuple[Address, ...]],
        on_contact: Callable[[Inbound], None],
        reactions_in_context: frozenset[str],
        transcripts: Transcripts,
    ) -> None:
        self._store = store
        self._clock = clock
        self._bus = bus
        self._authorize = authorize
        self._command_queue = command_queue
        self._command_runner = command_runner
        self._answers = answers
        self._dead = dead
        self._display = display
        self._outages = outages
        self._cross_posts = cross_posts
        self._shortcuts = shortcuts
        self._timestamps = timestamps
        self._resolve_targets = resolve_targets
        self._on_contact = on_contact
        self._reactions_in_context = reactions_in_context
        self._transcripts = transcripts
        self._inbound_limit = InboundLimit(clock)
        self._session_keys = SessionKeys(store, clock)

    async def accept(self, inbound: Inbound, authorize: Authorize | None = None) -> None:
        """Return once the message is durable; a key seen before changes nothing.

        Raises `InboundRefused` if the sender should retry later. `authorize` replaces our own rules
        when another profile's channel received the message.
        """
        try:
            msgspec.json.encode(inbound)
        except UnicodeEncodeError:
            inbound = msgspec.convert(_replaced(msgspec.to_builtins(inbound)), Inbound)
        if len(inbound.parts) == 1 and _is_for_another_bot(inbound):
            log.debug("%s is a command for another bot", inbound.key)
            return
        key, address = f"{inbound.address.channel}:{inbound.key}", inbound.address
        failpoint("intake.before_authorization")
        admitted = await (authorize or self._authorize)(inbound)
        if isinstance(admitted, Rejected):
            if admitted.reply and isinstance(inbound.update, NewMessage):
                await self._command_queue.reply(f"{key}:reply", address, admitted.reply)
            return
        rate = self._inbound_limit.rate_of(admitted.principal, admitted.role)
        if rate.tokens < 1 and await self._refuse_if_new(key, admitted, inbound, rate):
            return
        with self._outages.store_watch(address):
            if admitted.chat is not None:
                own = await self._session_keys.assign(admitted.key, admitted.chat, address)
                admitted = structs.replace(admitted, key=own)
            if self._dead.reasons:
                await self._dead.revive(address)
        self._on_contact(inbound)
        message = self._inbox_message(inbound, admitted)
        failpoint("intake.before_store")
        if isinstance(inbound.update, NewMessage):
            new = await self._accept_new(key, admitted, inbound, message)
        else:
            new = await self._accept_change(key, admitted, inbound, inbound.update, message)
        if new:
            rate.tokens -= 1
        failpoint("intake.before_ack")

    async def _accept_change(
        self, key: str, admitted: Admitted, inbound: Inbound, update: Change, message: InboxMessage
    ) -> bool:
        """Store what happened to an earlier message; return whether it is new."""
        match update:
            case PressedButton(value):
                return await self._accept_press(key, admitted, message, value)
            case EditedMessage() | DeletedMessage() | ChangedReaction():
                change = self._change(inbound, update, message)
                if change is None:
                    return False
                return await self._accept_message(key, admitted, change, inbound.written_at)
            case _:
                assert_never(update)

    def _change(
        self,
        inbound: Inbound,
        update: EditedMessage | DeletedMessage | ChangedReaction,
        message: InboxMessage,
    ) -> InboxMessage | None:
        """Return the row for a change to an earlier message; None if it is ignored."""
        match update:
            case EditedMessage():
                is_text = message.user.parts and self._command_line(message) is None
                return structs.replace(message, kind=InboxKind.EDIT) if is_text else None
            case DeletedMessage():
                return structs.replace(message, kind=InboxKind.DELETE)
            case ChangedReaction(emoji, removed):
                if platform_of(inbound.address.channel) not in self._reactions_in_context:
                    return None
                user = structs.replace(message.user, parts=(reaction_note(emoji, removed=removed),))
                return structs.replace(message, user=user, kind=InboxKind.CONTEXT)

    async def _accept_new(
        self, key: str, admitted: Admitted, inbound: Inbound, message: InboxMessage
    ) -> bool:
        if inbound.job:
            return await self._fire_job(key, inbound.job, message)
        if inbound.verbatim:
            return await self._deliver_verbatim(key, message)
        if len(message.user.parts) == 1:
            line = self._command_line(message)
            if line is None and await self._answers.is_answer(admitted, message):
                line = ""
            if line is not None:
                return await self._accept_command(key, admitted, message, line)
        new = await self._accept_message(key, admitted, message, inbound.written_at)
        if new and inbound.address.channel in self._display.channels:
            self._display.acknowledge(inbound.address, inbound.message)
        return new

    async def _accept_press(
        self, key: str, admitted: Admitted, message: InboxMessage, value: str
    ) -> bool:
        async def work() -> CommandResult:
            return await self._answers.press(admitted, message, value)

        return await self._command_queue.submit(
            QueuedCommand(key=key, session=admitted.key, message=message, work=work, urgent=True)
        )

    def _inbox_message(self, inbound: Inbound, admitted: Admitted) -> InboxMessage:
        parts = tuple([part for part in inbound.parts if not isinstance(part, Recording)])
        recordings: tuple[Recording, ...] = ()
        if len(parts) < len(inbound.parts):
            parts, recordings = self._transcripts.split(inbound.parts)
        is_late = (
            inbound.written_at is not None
            and isinstance(inbound.update, NewMessage)
            and self._clock.now() - inbound.written_at > LATE
        )
        return InboxMessage(
            user=User(new_id("msg"), parts, admitted.trust),
            recordings=recordings,
            address=inbound.address,
            asker=Requester(
                user=inbound.sender,
                name=inbound.about.user_name,
                chat_name=inbound.about.chat_name,
                message=inbound.message or "",
            ),
            principal=admitted.principal,
            role=admitted.role,
            answer_at=self._resolve_targets(inbound.answer_to) if inbound.answer_to else (),
            reply_to=inbound.reply_to,
            missed=is_late,
        )

    async def _accept_message(
        self, key: str, admitted: Admitted, message: InboxMessage, written_at: datetime | None
    ) -> bool:
        """Store it and wake the session; return whether it is new."""
        if self._timestamps is not None and message.kind is not InboxKind.DELETE:
            user = self._timestamps.stamped(message.user, written_at)
            message = structs.replace(message, user=user)
        commands = self._command_queue
        if message.recordings or (commands.open and commands.has_open(admitted.key)):
            return await commands.submit_message(key, admitted.key, message)
        with self._outages.store_watch(message.address):
            new = await self._store.queues.put(inbox_item(key, admitted.key, message))
        if new:
            failpoint("intake.after_store")
        self._outages.addresses.put(admitted.key, message.address)
        # Wake even for a known key: the first attempt may have been interrupted before waking.
        self._bus.wake(INBOX, admitted.key)
        return new

    async def _refuse_if_new(
        self, key: str, admitted: Admitted, inbound: Inbound, rate: UserRate
    ) -> bool:
        """Reject a message of a user who writes too fast, unless it was accepted before."""
        if not await self._is_new(f"{key}:0" if inbound.verbatim else key):
            return False
        if authenticated_role(platform_of(inbound.address.channel)) is not None:
            raise InboundRefused(TOO_FAST, wait=(1.0 - rate.tokens) / INBOUND_RATE)
        rejected = QueueItem(key=key, queue=REJECTED, topic=admitted.key, body=Raw(b"null"))
        notice = self._inbound_limit.notice(rate)
        await self._command_queue.reply(
            f"{key}:reply", inbound.address, notice, EnqueueItem(rejected), CompleteItem(key)
        )
        return True

    async def _accept_command(
        self, key: str, admitted: Admitted, message: InboxMessage, line: str
    ) -> bool:
        work = partial(self._answer_to, admitted, message, line)
        urgent = not line or command_name(line) in IMMEDIATE_COMMANDS
        return await self._command_queue.submit(
            QueuedCommand(key=key, session=admitted.key, message=message, work=work, urgent=urgent)
        )

    def _command_line(self, message: InboxMessage) -> str | None:
        """Return the command line if the message is a command and nothing else."""
        match message.user.parts:
            case (Text(text),) if is_typed_command(expanded := self._shortcuts.expand(text)):
                return expanded.strip()
            case _:
                return None

    async def _answer_to(
        self, admitted: Admitted, message: InboxMessage, line: str
    ) -> CommandResult:
        if self._shortcuts.is_shell_shortcut(line):
            raise UsageError(NO_SHELL, hint="Ask for it in words; it then runs in the sandbox.")
        if line:
            return await self._command_runner.run(admitted, message, line)
        answer = await self._answers.answer(admitted, message)
        # If the question has been closed meanwhile, treat it as a normal message.
        return SubmitMessage(message.user.parts) if answer is None else answer

    async def _fire_job(self, key: str, job: str, message: InboxMessage) -> bool:
        """Store the call for the scheduled jobs; the key prevents duplicates."""
        new = await self._is_new(key)
        body = Raw(msgspec.json.encode(JobCall(text_of(message.user))))
        item = QueueItem(key=key, queue=JOB_CALLS, topic=job, body=body)
        await self._store.commit(EnqueueItem(item))
        self._bus.wake(SCHEDULED_JOBS)
        return new

    async def _deliver_verbatim(self, key: str, message: InboxMessage) -> bool:
        """Deliver the text unchanged; the keys prevent duplicates."""
        reply = OutboxMessage(
            address=message.address, text=text_of(message.user), at=self._clock.now()
        )
        new = await self._is_new(f"{key}:0")
        await self._store.commit(
            *(
                outbox_post(f"{key}:{index}", structs.replace(reply, address=address))
                for index, address in enumerate(message.reply_addresses)
            )
        )
        for address in message.reply_addresses:
            wake_outbox(self._bus, address)
            if message.answer_at and new:
                self._cross_posts.add_later(address, reply.text)
        return new

    async def _is_new(self, key: str) -> bool:
        try:
            await self._store.queues.status(key)
        except NotFound:
            return True
        return False


def _replaced(value: object) -> object:
    """Replace characters that cannot be encoded as UTF-8."""
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
    """Whether the text is a command, possibly followed by a bot name."""
    return is_command(text.replace("@", " @", 1))


def _is_for_another_bot(inbound: Inbound) -> bool:
    """In groups, `/name@bot` is meant for the named bot only."""
    if inbound.verbatim or inbound.about.chat_type == DIRECT_CHAT or inbound.about.mentions:
        return False
    match inbound.parts:
        case (Text(text),) if is_typed_command(text):
            return "@" in text.split(None, 1)[0]
        case _:
            return False
