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

from hermes.commands.surface import Busy
from hermes.gateway.failures import BROKEN
from hermes.gateway.letters import COMMANDS, Letter, Reply, letter_parcel, post_reply, read_letter
from hermes.kit.clock import Clock
from hermes.kit.deadline import TooLong, sleep_unless, within
from hermes.kit.failpoints import passing
from hermes.kit.holder import this_process
from hermes.kit.text import one_line
from hermes.ports.store import Done, Fate, Parcel, Post, Store, Write
from hermes.schema.errors import HermesError
from hermes.schema.messages import Media, Text, User, text_of
from hermes.schema.scope import Address

log = logging.getLogger(__name__)

BEHIND = "behind"
"""The lane of what is to be said once the commands before it are done."""

LIMIT = 600.0
"""Seconds that a command may take."""

MOMENT = 1.0
"""Seconds that whoever brings a command waits for its end, so that what comes next comes next."""

TOO_LONG = "“{line}” took too long and was cut off. It may be done in part."
STOPPED = "“{line}” was stopped. It may be done in part."
GIVEN_BACK = "“{line}” was cut off and may not be done. Send it again if you still want it."

_EVERYTHING = 1000
_WIDTH = 60


class Say(Struct, frozen=True):
    """Something to put into the inbox in the person's name."""

    parts: tuple[Text | Media, ...]
    manner: Busy | None = None
    told: str = ""


Answer: TypeAlias = str | Say


class Chore(Struct, kw_only=True, eq=False):
    """One thing to do for a `session`; what is `urgent` waits for none that came before it."""

    key: str
    session: str
    letter: Letter
    work: Callable[[], Awaitable[Answer]]
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


class Doing(Struct, frozen=True):
    """For how many seconds something is being done, if it is, and how much waits behind it."""

    seconds: float | None = None
    waiting: int = 0


class Ended(Struct, frozen=True):
    """What a stop came to: commands that were ended, and what waited behind them."""

    running: Sequence[Chore] = ()
    waiting: int = 0


class Chores:
    """`put` makes a row of a parcel, and says whether it is new."""

    def __init__(
        self, store: Store, clock: Clock, put: Callable[[Parcel, Address], Awaitable[bool]]
    ) -> None:
        self._store = store
        self._clock = clock
        self._put = put
        self._open: dict[str, Chore] = {}
        self._unbegun: list[Chore] = []
        self._calm = anyio.Event()
        self._closed = False
        self._group: anyio.abc.TaskGroup | None = None
        self._posted: Callable[[Address], None] = _nobody
        self._wake: Callable[[str], None] = _nobody_wakes

    def speaks_through(
        self, posted: Callable[[Address], None], wake: Callable[[str], None]
    ) -> None:
        """Where replies are announced, and who is told that something waits for a session."""
        self._posted, self._wake = posted, wake

    async def run(self) -> None:
        """Until cut off or cancelled."""
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                for chore in self._unbegun:
                    group.start_soon(self._carry_out, chore)
                self._unbegun = []
                await anyio.sleep_forever()
        finally:
            self._group, self._closed = None, True

    async def recover(self) -> None:
        """Commands that nobody finished are told of, never done again; what waited is said."""
        for lane in (COMMANDS, BEHIND):
            parcels = await self._store.lanes.claim(
                lane, None, this_process(), timedelta(0), _EVERYTHING
            )
            for parcel in parcels:
                await self._give_back_open(parcel)

    async def take(self, chore: Chore) -> bool:
        """Returns once it is a row, and done unless that takes longer than a moment.

        False when it was brought before. Raises what kept its end from being written, if anything.
        """
        new = False
        # To have it in hand and to have its row must not be parted by whoever gives up waiting.
        with anyio.CancelScope(shield=True):
            new = await self._begin(chore)
        if new and chore.lane == COMMANDS and not self._closed:
            await sleep_unless(self._clock, MOMENT, chore.over)
            if chore.failure is not None:
                raise chore.failure
        return new

    def are_open(self, session: str) -> bool:
        """Whether something is being done there that the next word has to wait for."""
        return any(one.session == session for one in self._open.values())

    def doing(self, session: str, letter: Letter) -> Doing:
        """What goes on there besides what came with the letter."""
        others = [one for one in self._of(session) if one.letter is not letter]
        begun = [one.begun for one in others if one.begun is not None]
        seconds = self._clock.monotonic() - min(begun) if begun else None
        return Doing(seconds, len(others) - len(begun))

    async def stop(self, session: str, principal: str | None = None) -> Ended:
        """End what is being done there and set aside what waits; with a principal, only theirs."""
        found = [one for one in self._of(session) if principal in {None, one.letter.principal}]
        running = [one for one in found if one.begun is not None]
        waiting = [one for one in found if one.begun is None]
        for one in waiting:
            one.aside = True
        await self._store.commit(*[Done(one.key) for one in waiting])
        for one in found:
            one.scope.cancel()
        return Ended(running, len(waiting))

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
        reply = Reply(address=address, text=text, at=self._clock.now())
        more = [post_reply(key, reply)] if text.strip() else []
        await self._store.commit(*writes, *more)
        self._posted(address)

    def _of(self, session: str) -> list[Chore]:
        return [one for one in self._open.values() if one.session == session and not one.urgent]

    async def _begin(self, chore: Chore) -> bool:
        key, parcel = chore.key, _parcel(chore)
        mine = self._open.setdefault(key, chore) is chore
        earlier = [one for one in self._open.values() if one.session == chore.session]
        if not chore.urgent:
            chore.after = [one.over for one in earlier if one is not chore]
        try:
            new = await self._put(parcel, chore.letter.address)
        except BaseException:
            self._forget(chore)
            raise
        if new:
            self._open[key] = chore
            self._start(chore)
        elif mine:
            self._forget(chore)
            await self._give_back_open(parcel)
        return new

    def _start(self, chore: Chore) -> None:
        if self._group is None:
            self._unbegun.append(chore)
        else:
            self._group.start_soon(self._carry_out, chore)

    def _forget(self, chore: Chore) -> None:
        if self._open.get(chore.key) is chore:
            del self._open[chore.key]
        chore.over.set()
        if not self._open:
            self._calm.set()

    async def _carry_out(self, chore: Chore) -> None:
        try:
            await self._to_its_end(chore)
        except Exception as error:
            # Its row tells of it later; whoever still waits for it hears it now.
            log.exception("the end of %s could not be written", chore.line)
            chore.failure = error
        finally:
            self._forget(chore)

    async def _to_its_end(self, chore: Chore) -> None:
        answer: Answer = STOPPED.format(line=chore.line)
        with chore.scope:
            for one in chore.after:
                await one.wait()
            if not chore.aside:
                chore.begun = self._clock.monotonic()
                answer = await self._answer(chore)
        if chore.aside:
            return
        passing("commands.ran")
        if isinstance(answer, Say):
            await self._say(chore, answer)
        else:
            await self.reply(f"{chore.key}:reply", chore.letter.address, answer, Done(chore.key))
        passing("commands.replied")

    async def _answer(self, chore: Chore) -> Answer:
        passing("commands.put")
        try:
            return await within(self._clock, LIMIT, chore.work)
        except HermesError as error:
            return error.sentence
        except TooLong:
            log.warning("the command %s was cut off after %g s", chore.line, LIMIT)
            return TOO_LONG.format(line=chore.line)
        except Exception:
            log.exception("the command %s broke", chore.line)
            return BROKEN

    async def _say(self, chore: Chore, say: Say) -> None:
        key, letter = chore.key, chore.letter
        user = User(letter.user.id, say.parts, letter.user.trust)
        said = structs.replace(letter, user=user, manner=say.manner)
        post = Post(letter_parcel(f"{key}:said", chore.session, said))
        await self.reply(f"{key}:reply", letter.address, say.told, post, Done(key))
        self._wake(chore.session)

    async def _give_back_open(self, parcel: Parcel) -> None:
        """Unless somebody has it in hand, or it was done."""
        if parcel.key in self._open:
            return
        fate, _ = await self._store.lanes.fate(parcel.key)
        if fate is not Fate.WAITING:
            return
        passing("commands.before_give_back")
        await self._give_back(parcel)
        passing("commands.after_give_back")

    async def _give_back(self, parcel: Parcel) -> None:
        try:
            letter = read_letter(parcel)
        except msgspec.DecodeError as error:
            await self._store.lanes.park(parcel.key, f"It cannot be read: {error}")
            return
        if parcel.lane == BEHIND:
            post = Post(letter_parcel(f"{parcel.key}:said", parcel.topic, letter))
            await self._store.commit(post, Done(parcel.key))
            self._wake(parcel.topic)
            return
        text = GIVEN_BACK.format(line=one_line(text_of(letter.user), _WIDTH))
        await self.reply(f"{parcel.key}:reply", letter.address, text, Done(parcel.key))


def _parcel(chore: Chore) -> Parcel:
    return letter_parcel(chore.key, chore.session, chore.letter, chore.lane)


def _nobody(address: Address) -> None:
    log.debug("nobody delivers to %s", address)


def _nobody_wakes(session: str) -> None:
    log.debug("nobody is woken for %s", session)
