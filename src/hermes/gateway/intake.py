"""The one door for messages from chats: let in, make durable, wake, and only then acknowledge."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeAlias, cast

import msgspec
from msgspec import Raw, structs

from hermes.commands.registry import is_command
from hermes.gateway.actors import Actors
from hermes.gateway.answers import Answers
from hermes.gateway.authorize import is_vouched
from hermes.gateway.chores import BEHIND, Answer, Chore, Chores, Say
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.desk import AT_ONCE, Desk, command_name
from hermes.gateway.flood import REFUSED, TOO_FAST, Flood
from hermes.gateway.keyholders import Keyholders
from hermes.gateway.letters import (
    Letter,
    Reply,
    TurnedAway,
    Welcome,
    letter_parcel,
    platform_of,
    post_reply,
)
from hermes.gateway.shortcuts import Shortcuts
from hermes.gateway.stamps import unstamped
from hermes.kit.clock import Clock
from hermes.kit.failpoints import passing
from hermes.kit.ids import new_id
from hermes.ports.channel import Inbound, NotTaken
from hermes.ports.store import Done, Parcel, Post, Store
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Asker
from hermes.session.keys import DIRECT

log = logging.getLogger(__name__)

Door: TypeAlias = Callable[[Inbound], Awaitable[Welcome | TurnedAway]]
"""Who may speak, and in which session."""

NO_SHELL = "Commands of a shell cannot be run straight from a chat."


class Intake:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Door,
        actors: Actors,
        desk: Desk,
        dead: DeadTargets,
    ) -> None:
        self._store = store
        self._clock = clock
        self._door = door
        self._actors = actors
        self._desk = desk
        self._dead = dead
        self._answers: Answers | None = None
        self.chores = Chores(store, clock, self._put)
        self._shortcuts = Shortcuts()
        self._flood = Flood(clock)
        self._keyholders = Keyholders(store, clock)
        self._posted: Callable[[Address], None] = _nobody
        self._sign: Callable[[Inbound], None] = _no_sign
        self._met: Callable[[Inbound], None] = _no_sign
        self._places: Callable[[str], tuple[Address, ...]] = _nowhere
        self._brought: Callable[[Address, str], None] = _not_told
        self._minding: Callable[[Address], AbstractContextManager[None]] = _unminded
        self._stamp: Callable[[User], User] = unstamped

    def speaks_through(
        self, posted: Callable[[Address], None], sign: Callable[[Inbound], None]
    ) -> None:
        """Where replies are announced, and what gives an instant sign that a message is here."""
        self.chores.speaks_through(posted, self._actors.wake)
        self._posted = posted
        self._sign = sign

    def minds(self, minding: Callable[[Address], AbstractContextManager[None]]) -> None:
        """What watches over a message until it is stored, and tells the chat when it cannot be."""
        self._minding = minding

    def understands(self, shortcuts: Shortcuts) -> None:
        """What else means a command."""
        self._shortcuts = shortcuts

    def stamps(self, stamp: Callable[[User], User]) -> None:
        """What puts the time before a message."""
        self._stamp = stamp

    def hears(self, answers: Answers) -> None:
        """Who takes what is said to a question of the agent."""
        self._answers = answers

    def brings_elsewhere(
        self,
        places: Callable[[str], tuple[Address, ...]],
        brought: Callable[[Address, str], None],
        met: Callable[[Inbound], None],
    ) -> None:
        """What the names of targets mean, who is told what was brought there, and who was met."""
        self._places = places
        self._brought = brought
        self._met = met

    async def deliver(self, inbound: Inbound, door: Door | None = None) -> None:
        """Returns once the message is durable; a key that was seen before changes nothing.

        Raises `NotTaken` where whoever sent it is to send it again later.
        `door` is that of whoever heard it, when it was not one of our own channels.
        """
        inbound = writable(inbound)
        if _is_for_another(inbound):
            log.debug("%s is a command for somebody else", inbound.key)
            return
        key = f"{inbound.address.channel}:{inbound.key}"
        passing("intake.before_door")
        welcome = await (door or self._door)(inbound)
        if isinstance(welcome, TurnedAway):
            if welcome.reply:
                await self.chores.reply(f"{key}:reply", inbound.address, welcome.reply)
            return
        if await self._is_too_fast(key, welcome, inbound):
            return
        with self._minding(inbound.address):
            welcome = await self._at_home(welcome, inbound.address)
            await self._dead.revive(inbound.address)
        self._met(inbound)
        letter = Letter(
            user=User(new_id("msg"), inbound.parts, welcome.trust),
            address=inbound.address,
            asker=_asker(inbound),
            principal=welcome.principal,
            role=welcome.role,
            answer_at=self._places(inbound.answer_to) if inbound.answer_to else (),
            reply_to=inbound.reply_to,
        )
        line = self._line(letter)
        passing("intake.before_put")
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
            self._flood.count(welcome.principal, welcome.role)
        passing("intake.before_ack")

    async def _message(self, key: str, welcome: Welcome, letter: Letter) -> bool:
        """Whether it is new."""
        letter = structs.replace(letter, user=self._stamp(letter.user))
        if self.chores.are_open(welcome.key):
            return await self._behind(key, welcome, letter)
        new = await self._put(letter_parcel(key, welcome.key, letter), letter.address)
        if new:
            passing("intake.after_put")
        # Also one that is known: who brought it may have been cut off before waking anybody.
        self._actors.wake(welcome.key, letter.address)
        return new

    async def _is_too_fast(self, key: str, welcome: Welcome, inbound: Inbound) -> bool:
        """Whether it is refused, for good; what was taken before is not."""
        wait = self._flood.wait(welcome.principal, welcome.role)
        if not wait or not await self._is_new(f"{key}:0" if inbound.verbatim else key):
            return False
        if is_vouched(platform_of(inbound.address.channel)):
            raise NotTaken(TOO_FAST, wait=wait)
        refused = Parcel(key=key, lane=REFUSED, topic=welcome.key, body=Raw(b"null"))
        notice = self._flood.notice(welcome.principal)
        await self.chores.reply(f"{key}:reply", inbound.address, notice, Post(refused), Done(key))
        return True

    async def _put(self, parcel: Parcel, address: Address) -> bool:
        with self._minding(address):
            return await self._store.lanes.put(parcel)

    async def _at_home(self, welcome: Welcome, address: Address) -> Welcome:
        """With a session key that no other place has."""
        if welcome.place is None:
            return welcome
        key = await self._keyholders.key_for(welcome.key, welcome.place, address)
        return structs.replace(welcome, key=key)

    @property
    def commands(self) -> int:
        """How many are being done."""
        return self.chores.count

    async def _command(self, key: str, welcome: Welcome, letter: Letter, line: str) -> bool:
        work = partial(self._answer_to, welcome, letter, line)
        urgent = not line or command_name(line) in AT_ONCE
        return await self.chores.take(
            Chore(key=key, session=welcome.key, letter=letter, work=work, urgent=urgent)
        )

    async def _behind(self, key: str, welcome: Welcome, letter: Letter) -> bool:
        """To be said once the commands are done that came before it."""

        async def work() -> Answer:
            return Say(letter.user.parts)

        return await self.chores.take(
            Chore(key=key, session=welcome.key, letter=letter, work=work, lane=BEHIND)
        )

    def _line(self, letter: Letter) -> str | None:
        """The command that is meant, when the message is one and nothing else."""
        match letter.user.parts:
            case (Text(text),):
                meant = self._shortcuts.meant(text)
                return meant.strip() if is_typed(meant) else None
            case _:
                return None

    async def _answer_to(self, welcome: Welcome, letter: Letter, line: str) -> Answer:
        if self._shortcuts.is_for_a_shell(line):
            raise UsageError(NO_SHELL, hint="Ask for it in words: then it runs behind the wall.")
        if line or self._answers is None:
            return await self._desk.run(welcome, letter, line)
        told = await self._answers.take(welcome, letter)
        # When the question is gone meanwhile, it was something to say.
        return Say(letter.user.parts) if told is None else told

    async def _pass_on(self, key: str, letter: Letter) -> bool:
        """Deliver what was said as it is. The parcels' keys let nothing through twice."""
        reply = Reply(address=letter.address, text=text_of(letter.user), at=self._clock.now())
        new = await self._is_new(f"{key}:0")
        await self._store.commit(
            *(
                post_reply(f"{key}:{place}", structs.replace(reply, address=address))
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
            await self._store.lanes.fate(key)
        except NotFound:
            return True
        return False


def writable(inbound: Inbound) -> Inbound:
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


def is_typed(text: str) -> bool:
    """Whether it is a command, perhaps with the name of a bot behind that of the command."""
    return is_command(text.replace("@", " @", 1))


def _is_for_another(inbound: Inbound) -> bool:
    """Where several listen, `/name@somebody` is for the one that is named."""
    if inbound.verbatim or inbound.about.chat_type == DIRECT or inbound.about.mentions:
        return False
    match inbound.parts:
        case (Text(text),) if is_typed(text):
            return "@" in text.split(None, 1)[0]
        case _:
            return False


def _asker(inbound: Inbound) -> Asker:
    return Asker(
        user=inbound.sender,
        name=inbound.about.user_name,
        chat_name=inbound.about.chat_name,
        message=inbound.message or "",
    )


def _nobody(address: Address) -> None:
    log.debug("nobody delivers to %s", address)


def _unminded(address: Address) -> AbstractContextManager[None]:
    return nullcontext()


def _nowhere(targets: str) -> tuple[Address, ...]:
    return ()


def _not_told(address: Address, text: str) -> None:
    log.debug("nobody is told what was brought to %s", address)


def _no_sign(inbound: Inbound) -> None:
    log.debug("no sign for %s", inbound.key)
