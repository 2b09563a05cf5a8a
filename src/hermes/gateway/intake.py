"""The one door for messages from chats: let in, make durable, wake, and only then acknowledge."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeAlias, cast

import anyio
import msgspec
from msgspec import structs

from hermes.commands.registry import is_command
from hermes.gateway.actors import Actors
from hermes.gateway.answers import Answers
from hermes.gateway.dead_targets import DeadTargets
from hermes.gateway.desk import Answer, Desk, Say
from hermes.gateway.flood import Flood
from hermes.gateway.keyholders import Keyholders
from hermes.gateway.letters import (
    COMMANDS,
    Letter,
    Reply,
    TurnedAway,
    Welcome,
    letter_parcel,
    post_reply,
    read_letter,
)
from hermes.gateway.runs import BROKEN
from hermes.gateway.shortcuts import Shortcuts
from hermes.kit.clock import Clock
from hermes.kit.deadline import TooLong, sleep_unless, within
from hermes.kit.failpoints import passing
from hermes.kit.holder import this_process
from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.channel import Inbound
from hermes.ports.store import Done, Fate, Parcel, Post, Store, Write
from hermes.schema.errors import HermesError, NotFound, UsageError
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Address, Asker
from hermes.session.keys import DIRECT

log = logging.getLogger(__name__)

Door: TypeAlias = Callable[[Inbound], Awaitable[Welcome | TurnedAway]]
"""Who may speak, and in which session."""

LIMIT = 600.0
"""Seconds that a command may take."""

NO_SHELL = "Commands of a shell cannot be run straight from a chat."
TOO_LONG = "“{line}” took too long and was cut off. It may be done in part."

_EVERYTHING = 1000


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
        self._in_hand: dict[str, anyio.CancelScope] = {}
        self._calm = anyio.Event()
        self._shortcuts = Shortcuts()
        self._flood = Flood(clock)
        self._keyholders = Keyholders(store, clock)
        self._posted: Callable[[Address], None] = _nobody
        self._sign: Callable[[Inbound], None] = _no_sign
        self._met: Callable[[Inbound], None] = _no_sign
        self._places: Callable[[str], tuple[Address, ...]] = _nowhere
        self._brought: Callable[[Address, str], None] = _not_told

    def speaks_through(
        self, posted: Callable[[Address], None], sign: Callable[[Inbound], None]
    ) -> None:
        """Where replies are announced, and what gives an instant sign that a message is here."""
        self._posted = posted
        self._sign = sign

    def understands(self, shortcuts: Shortcuts) -> None:
        """What else means a command."""
        self._shortcuts = shortcuts

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
                await self._reply(f"{key}:reply", inbound.address, welcome.reply)
            return
        too_fast = self._flood.refusal(welcome.principal, welcome.role)
        if too_fast is not None:
            await self._reply(f"{key}:reply", inbound.address, too_fast)
            return
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
            await self._pass_on(key, letter)
        elif line is not None:
            await self._command(key, welcome, letter, line)
        elif self._answers is not None and await self._answers.takes(welcome, letter):
            await self._command(key, welcome, letter, "")
        elif await self._store.lanes.put(letter_parcel(key, welcome.key, letter)):
            passing("intake.after_put")
            self._sign(inbound)
            self._actors.wake(welcome.key)
        else:
            # Whoever brought it the first time may have been cut off before waking anybody.
            self._actors.wake(welcome.key)
        passing("intake.before_ack")

    async def _at_home(self, welcome: Welcome, address: Address) -> Welcome:
        """With a session key that no other place has."""
        if welcome.place is None:
            return welcome
        key = await self._keyholders.key_for(welcome.key, welcome.place, address)
        return structs.replace(welcome, key=key)

    async def recover(self) -> None:
        """Commands that an earlier process did not finish are told of, never done again."""
        lanes = self._store.lanes
        parcels = await lanes.claim(COMMANDS, None, this_process(), timedelta(0), _EVERYTHING)
        for parcel in parcels:
            passing("commands.before_give_back")
            await self._give_back(parcel)
            passing("commands.after_give_back")

    async def _give_back(self, parcel: Parcel) -> None:
        try:
            letter = read_letter(parcel)
        except msgspec.DecodeError as error:
            await self._store.lanes.park(parcel.key, f"It cannot be read: {error}")
            return
        line = one_line(text_of(letter.user), 60)
        text = f"“{line}” was cut off and may not be done. Send it again if you still want it."
        await self._reply(f"{parcel.key}:reply", letter.address, text, Done(parcel.key))

    @property
    def commands(self) -> int:
        """How many are being done."""
        return len(self._in_hand)

    async def drain(self, seconds: float) -> None:
        """Let the commands that are being done come to their end, for so long."""
        self._calm = anyio.Event()
        if self._in_hand:
            await sleep_unless(self._clock, seconds, self._calm)

    def cut_off(self) -> None:
        """Wait for no command any longer; their rows tell of them after the next start."""
        for scope in self._in_hand.values():
            scope.cancel()

    async def _command(self, key: str, welcome: Welcome, letter: Letter, line: str) -> None:
        """To its end once it is a row: whoever brought it may be cut off meanwhile."""
        parcel = letter_parcel(key, welcome.key, letter, COMMANDS)
        with anyio.CancelScope(shield=True) as scope:
            if await self._store.lanes.put(parcel):
                self._in_hand[key] = scope
                try:
                    await self._carry_out(key, welcome, letter, line)
                finally:
                    del self._in_hand[key]
                    if not self._in_hand:
                        self._calm.set()
            elif key not in self._in_hand:
                await self._give_back_open(key, letter)

    async def _give_back_open(self, key: str, letter: Letter) -> None:
        """It came again, nobody has it in hand, and it was never answered."""
        fate, _ = await self._store.lanes.fate(key)
        if fate is Fate.WAITING:
            await self._give_back(letter_parcel(key, "", letter, COMMANDS))

    async def _carry_out(self, key: str, welcome: Welcome, letter: Letter, line: str) -> None:
        passing("commands.put")
        try:
            work = partial(self._answer_to, welcome, letter, line)
            answer = await within(self._clock, LIMIT, work)
        except HermesError as error:
            answer = error.sentence
        except TooLong:
            log.warning("the command %s was cut off after %g s", one_line(line, 60), LIMIT)
            answer = TOO_LONG.format(line=one_line(line or text_of(letter.user), 60))
        except Exception:
            log.exception("the command %s broke", one_line(line, 60))
            answer = BROKEN
        passing("commands.ran")
        if isinstance(answer, Say):
            await self._say(key, welcome, letter, answer)
        else:
            await self._reply(f"{key}:reply", letter.address, answer, Done(key))
        passing("commands.replied")

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

    async def _pass_on(self, key: str, letter: Letter) -> None:
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

    async def _is_new(self, key: str) -> bool:
        try:
            await self._store.lanes.fate(key)
        except NotFound:
            return True
        return False

    async def _say(self, key: str, welcome: Welcome, letter: Letter, say: Say) -> None:
        user = User(letter.user.id, say.parts, letter.user.trust)
        said = msgspec.structs.replace(letter, user=user, manner=say.manner)
        post = Post(letter_parcel(f"{key}:said", welcome.key, said))
        await self._reply(f"{key}:reply", letter.address, say.told, post, Done(key))
        self._actors.wake(welcome.key)

    async def _reply(self, key: str, address: Address, text: str, *writes: Write) -> None:
        reply = Reply(address=address, text=text, at=self._clock.now())
        more = [post_reply(key, reply)] if text.strip() else []
        await self._store.commit(*writes, *more)
        self._posted(address)


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


def _nowhere(targets: str) -> tuple[Address, ...]:
    return ()


def _not_told(address: Address, text: str) -> None:
    log.debug("nobody is told what was brought to %s", address)


def _no_sign(inbound: Inbound) -> None:
    log.debug("no sign for %s", inbound.key)
