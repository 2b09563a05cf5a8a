"""What slash commands from a chat do: they never wait behind a turn."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, assert_never

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.commands.command import Ask, Back, Command, Context, Leave, OnScreen, Told
from hermes.commands.registry import Registry
from hermes.commands.surface import Activity, Busy, Moved, Person, Seat, Stopped, Surface
from hermes.gateway.actors import Actors
from hermes.gateway.chores import Answer, Chores, Doing, Ended, Say
from hermes.gateway.hooks import Hooks, NoHooks, Verdict
from hermes.gateway.later import moved
from hermes.gateway.letters import Letter, Welcome, platform_of
from hermes.gateway.occasions import (
    command_event,
    occasion_of,
    tell_session_end,
    tell_session_reset,
)
from hermes.gateway.question_posts import NO_QUESTION, QuestionPosts
from hermes.gateway.sessions import ChatSessions
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.ports.store import ChangeSession, Store
from hermes.schema.errors import UsageError
from hermes.schema.sessions import Session, SessionChange
from hermes.session.conversation import Conversation, Origin
from hermes.session.runner import Runner


class Order(Struct, frozen=True):
    """One typed command: who, in which session, and the words behind its name."""

    welcome: Welcome
    letter: Letter
    words: str


Urgent: TypeAlias = Callable[[Order], Awaitable[Answer]]
"""A command of the gateway itself, such as an answer to a request for approval."""

LINGERING = 0.25
"""Seconds after which somebody who stops a turn is told that its end takes longer."""
AT_ONCE = frozenset({"stop", "status", "approve", "deny", "help", "whoami"})
"""Commands that wait for no other one."""
_UNASKED = frozenset({"stop"})
"""Commands that no hook can keep waiting."""


class Desk:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        runner: Runner,
        actors: Actors,
        sessions: ChatSessions,
        questions: QuestionPosts,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._actors = actors
        self._sessions = sessions
        self._questions = questions
        self._hooks: Hooks = NoHooks()
        self._chores: Chores | None = None
        self._registry: Registry | None = None
        self._context: Callable[[Conversation], Context] | None = None
        self._urgent: dict[str, Urgent] = {}

    def knows(
        self,
        registry: Registry,
        context: Callable[[Conversation], Context],
        urgent: Mapping[str, Urgent],
    ) -> None:
        """The commands of every surface, and more of the gateway's own."""
        self._registry, self._context = registry, context
        self._urgent |= urgent

    def heeds(self, hooks: Hooks) -> None:
        """Whom commands are told to, and who may keep one from being run."""
        self._hooks = hooks

    def ends_too(self, chores: Chores) -> None:
        """What else than turns can be going on in a session, and be stopped."""
        self._chores = chores

    async def run(self, welcome: Welcome, letter: Letter, line: str) -> Answer:
        """Raises a `HermesError` that says why not."""
        name, words = command_name(line), line.split(None, 1)[1:]
        order = Order(welcome, letter, words[0].strip() if words else "")
        urgent = self._urgent.get(name)
        if urgent is None:
            return await self._common(order, name)
        if welcome.commands is not None and name not in welcome.commands:
            raise UsageError(f"/{name} is not for you here.", hint="/help lists what there is.")
        handled = await self._ask_hooks(order, name, await self._sessions.find(welcome.key))
        return await urgent(order) if handled is None else handled

    async def _common(self, order: Order, name: str) -> Answer:
        if self._registry is None or self._context is None:
            raise UsageError("There are no commands here.")
        talk = await self._talk(order)
        letter = order.letter
        question = await self._questions.question_in(letter.address, letter.reply_to)
        # What is said to another post may be about that one.
        question = question or (NO_QUESTION if letter.reply_to else "")
        context = self._seated(order, self._context(talk), talk, question)
        command = self._registry.admit(context, name)
        handled = await self._ask_hooks(order, command.name, talk.session)
        if handled is not None:
            return handled
        before = talk.session
        answer = await _answer(command, context, order.words)
        if not talk.started and talk.session != before:
            await self._keep(order, before, talk.session)
        return answer

    def _seated(self, order: Order, context: Context, talk: Conversation, question: str) -> Context:
        welcome, letter = order.welcome, order.letter
        seat = Seat(
            surface=Surface.CHAT,
            person=Person(id=letter.asker.user, name=letter.asker.name),
            address=letter.address,
            principal=welcome.principal,
            platform=platform_of(letter.address.channel),
            permitted=welcome.commands,
            # In a shared chat the session may be somebody else's; the past is everybody's own.
            archive=self._store.seen_by(welcome.principal),
            work=ChatWork(self, order),
            question=question,
        )
        return structs.replace(context, conversation=talk, role=welcome.role, seat=seat)

    async def _talk(self, order: Order) -> Conversation:
        """The talk in this chat; where none is open yet, a new one that is not on disk."""
        welcome, channel = order.welcome, order.letter.address.channel
        session = await self._sessions.find(welcome.key)
        origin = Origin(
            source=platform_of(channel),
            key=welcome.key,
            cwd=session.cwd if session else "",
            principal=session.principal if session else welcome.principal,
        )
        talk = Conversation(self._store, self._clock, self._runner, origin)
        if session is not None:
            await talk.resume(session.id)
        return talk

    async def _keep(self, order: Order, before: Session, after: Session) -> None:
        """A command chose something for a session that nobody has spoken in yet."""
        welcome, channel = order.welcome, order.letter.address.channel
        session = await self._sessions.current(welcome.key, channel, welcome.principal)
        await self._store.commit(ChangeSession(session.id, _chosen(before, after)))

    async def _ask_hooks(self, order: Order, name: str, session: Session | None) -> str | None:
        """None when the command is to be run; else what to answer in its place."""
        welcome, letter = order.welcome, order.letter
        occasion = occasion_of(letter, welcome.key, session.id if session else "")
        context = occasion.context(command=name, args=order.words)
        if name in _UNASKED:
            self._hooks.emit(command_event(name), context)
            return None
        decision = await self._hooks.decide(command_event(name), context)
        if decision is None:
            return None
        match decision.decision:
            case Verdict.ALLOW:
                return None
            case Verdict.DENY:
                raise UsageError(decision.message or f"/{name} is not allowed here.")
            case Verdict.HANDLED:
                return decision.message

    def activity(self, order: Order) -> Activity:
        key = order.welcome.key
        now = self._actors.activity(key)
        done = self._chores.doing(key, order.letter) if self._chores else Doing()
        seconds = now.seconds if now.run is not None else done.seconds or 0.0
        running = now.run is not None or done.seconds is not None
        return Activity(running=running, seconds=seconds, waiting=now.waiting + done.waiting)

    async def stop(self, welcome: Welcome, run: str) -> Stopped:
        key, only = welcome.key, None if welcome.stops_others else welcome.principal
        ended = Ended()
        if self._chores is not None and not run:
            ended = await self._chores.stop(key, only)
        stopped = await self._actors.stop(key, run or None, only)
        overs = [one.over for one in ended.running]
        overs += [stopped.over] if stopped.over is not None else []
        waiting = stopped.waiting + ended.waiting
        if only is not None and not overs and not waiting:
            raise UsageError("Nothing that you have asked is going on here.")
        lingers = False
        for over in overs:
            lingers = lingers or not await sleep_unless(self._clock, LINGERING, over)
        return Stopped(running=bool(overs), waiting=waiting, says_so=True, lingers=lingers)

    async def begin(self, order: Order, title: str) -> Moved:
        """What waits was meant for the session that is over, so it is set aside."""
        welcome, channel = order.welcome, order.letter.address.channel
        stopped = await self._actors.stop(welcome.key)
        old = await self._sessions.find(welcome.key)
        if old is not None:
            await self._sessions.end(old, "new")
            tell_session_end(self._hooks, occasion_of(order.letter, welcome.key, old.id), "new")
        session = await self._sessions.begin(welcome.key, channel, welcome.principal, title)
        occasion = occasion_of(order.letter, welcome.key, session.id)
        tell_session_reset(self._hooks, occasion, "new")
        return Moved(session, stopped.waiting)

    async def enter(self, order: Order, session: Session) -> Moved:
        """The chat goes on in that session, and the one that was open there is over."""
        key = order.welcome.key
        async with self._runner.holding(session.id) as lease:
            stopped = await self._actors.stop(key)
            # What the prompt says about the place is another one's, so it is written anew.
            system = UNSET if session.key == key else ""
            here = SessionChange(key=key, system=system, ended_at=None, end_reason="")
            over = SessionChange(ended_at=self._clock.now(), end_reason="resumed another")
            current = await self._sessions.find(key)
            others = [] if current is None else [ChangeSession(current.id, over)]
            place = moved(session.id, order.letter, key, self._clock.now())
            change = ChangeSession(session.id, here)
            await self._store.commit(*others, change, place, fence=lease.fence)
            while (left := await self._sessions.find(key)) and left.id != session.id:
                await self._store.commit(ChangeSession(left.id, over), fence=lease.fence)
        return Moved(session, stopped.waiting)

    def manner(self) -> Busy:
        return self._actors.busy

    def change_manner(self, manner: Busy) -> None:
        self._actors.change_busy(manner)


class ChatWork:
    """The turns and sessions of one chat, for the commands typed in it."""

    def __init__(self, desk: Desk, order: Order) -> None:
        self._desk = desk
        self._order = order

    def activity(self) -> Activity:
        return self._desk.activity(self._order)

    async def stop(self, run: str = "") -> Stopped:
        return await self._desk.stop(self._order.welcome, run)

    async def begin(self, title: str) -> Moved:
        return await self._desk.begin(self._order, title)

    async def enter(self, session: Session) -> Moved:
        return await self._desk.enter(self._order, session)

    def manner(self) -> Busy | None:
        return self._desk.manner()

    def change_manner(self, manner: Busy) -> None:
        self._desk.change_manner(manner)


def command_name(line: str) -> str:
    """In groups, platforms write the name of the bot behind that of the command."""
    return line.split(None, 1)[0].removeprefix("/").partition("@")[0].lower()


async def _answer(command: Command, context: Context, words: str) -> Answer:
    reply = await command.run(context, words)
    match reply:
        case Told(text=text) | Back(text=text):
            return text
        case Ask(parts, manner, told):
            return Say(parts, manner, told)
        case Leave():
            return "There is nothing to leave here."
        case OnScreen():
            return "There is no screen here."
        case _:
            assert_never(reply)


def _chosen(before: Session, after: Session) -> SessionChange:
    """What a command may set in a session that is not on disk yet."""
    return SessionChange(
        title=_news(before.title, after.title),
        model=_news(before.model, after.model),
        provider=_news(before.provider, after.provider),
        system=_news(before.system, after.system),
        effort=_news(before.effort, after.effort),
        personality=_news(before.personality, after.personality),
    )


def _news(before: str, after: str) -> str | UnsetType:
    return UNSET if after == before else after
