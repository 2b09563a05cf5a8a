"""What slash commands from a chat do: they never wait behind a turn."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias, assert_never

from msgspec import UNSET, Struct, UnsetType, structs

from hermes.commands.command import (
    Command,
    CommandContext,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.commands.registry import Registry
from hermes.commands.surface import (
    BusyMode,
    CommandCaller,
    ConversationActivity,
    Person,
    StopResult,
    Surface,
    SwitchedSession,
)
from hermes.config.schema import Config
from hermes.gateway.actor_pool import ActorPool
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.command_queue import (
    CommandActivity,
    CommandQueue,
    CommandResult,
    StoppedCommands,
    SubmitMessage,
)
from hermes.gateway.followups import location_of_message
from hermes.gateway.hook_events import (
    command_event,
    emit_session_end,
    emit_session_reset,
    event_source,
)
from hermes.gateway.hooks import Hooks, HookVerdict, NoHooks
from hermes.gateway.messages import Admitted, InboxMessage, platform_of
from hermes.gateway.questions import NOT_A_QUESTION, QuestionPosts
from hermes.kit.clock import Clock
from hermes.kit.deadline import sleep_unless
from hermes.ports.store import ChangeSession, Store
from hermes.schema.errors import UsageError
from hermes.schema.sessions import Session, SessionChange
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.runner import Runner


class CommandRequest(Struct, frozen=True):
    """One typed command: who, in which session, and the words behind its name."""

    welcome: Admitted
    letter: InboxMessage
    words: str


GatewayCommand: TypeAlias = Callable[[CommandRequest], Awaitable[CommandResult]]
"""A command of the gateway itself, such as an answer to a request for approval."""

STOP_WAIT = 0.25
"""Seconds after which somebody who stops a turn is told that its end takes longer."""
IMMEDIATE_COMMANDS = frozenset({"stop", "status", "approve", "deny", "help", "whoami"})
"""Commands that wait for no other one."""
_NEVER_BLOCKED = frozenset({"stop"})
"""Commands that no hook can keep waiting."""


class CommandRunner:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        runner: Runner,
        actors: ActorPool,
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
        self._command_queue: CommandQueue | None = None
        self._registry: Registry | None = None
        self._context: Callable[[Conversation], CommandContext] | None = None
        self._urgent: dict[str, GatewayCommand] = {}

    def knows(
        self,
        registry: Registry,
        context: Callable[[Conversation], CommandContext],
        urgent: Mapping[str, GatewayCommand],
    ) -> None:
        """The commands of every surface, and more of the gateway's own."""
        self._registry, self._context = registry, context
        self._urgent |= urgent

    def set_hooks(self, hooks: Hooks) -> None:
        """Whom commands are told to, and who may keep one from being run."""
        self._hooks = hooks

    def set_command_queue(self, command_queue: CommandQueue) -> None:
        """What else than turns can be going on in a session, and be stopped."""
        self._command_queue = command_queue

    async def run(self, welcome: Admitted, letter: InboxMessage, line: str) -> CommandResult:
        """Raises a `HermesError` that says why not."""
        name, words = command_name(line), line.split(None, 1)[1:]
        order = CommandRequest(welcome, letter, words[0].strip() if words else "")
        urgent = self._urgent.get(name)
        if urgent is None:
            return await self._common(order, name)
        if welcome.commands is not None and name not in welcome.commands:
            raise UsageError(f"/{name} is not for you here.", hint="/help lists what there is.")
        handled = await self._ask_hooks(order, name, await self._sessions.find(welcome.key))
        return await urgent(order) if handled is None else handled

    async def _common(self, order: CommandRequest, name: str) -> CommandResult:
        if self._registry is None or self._context is None:
            raise UsageError("There are no commands here.")
        talk = await self._talk(order)
        letter = order.letter
        question = await self._questions.question_in(letter.address, letter.reply_to)
        # What is said to another post may be about that one.
        question = question or (NOT_A_QUESTION if letter.reply_to else "")
        context = self._with_seat(order, self._context(talk), talk, question)
        command = self._registry.admit(context, name)
        handled = await self._ask_hooks(order, command.name, talk.session)
        if handled is not None:
            return handled
        before = talk.session
        answer = await _run_command(command, context, order.words)
        if not talk.started and talk.session != before:
            await self._keep(order, before, talk.session)
        return answer

    def _with_seat(
        self, order: CommandRequest, context: CommandContext, talk: Conversation, question: str
    ) -> CommandContext:
        welcome, letter = order.welcome, order.letter
        seat = CommandCaller(
            surface=Surface.CHAT,
            person=Person(id=letter.asker.user, name=letter.asker.name),
            address=letter.address,
            principal=welcome.principal,
            platform=platform_of(letter.address.channel),
            permitted=welcome.commands,
            # In a shared chat the session may be somebody else's; the past is everybody's own.
            archive=self._store.archive_for(welcome.principal),
            work=ChatControl(self, order),
            question=question,
        )
        return structs.replace(context, conversation=talk, role=welcome.role, seat=seat)

    async def _talk(self, order: CommandRequest) -> Conversation:
        """The talk in this chat; where none is open yet, a new one that is not on disk."""
        welcome, channel = order.welcome, order.letter.address.channel
        session = await self._sessions.find(welcome.key)
        origin = SessionOptions(
            source=platform_of(channel),
            key=welcome.key,
            cwd=session.cwd if session else "",
            principal=session.principal if session else welcome.principal,
        )
        talk = Conversation(self._store, self._clock, self._runner, origin)
        if session is not None:
            await talk.resume(session.id)
        return talk

    async def _keep(self, order: CommandRequest, before: Session, after: Session) -> None:
        """A command chose something for a session that nobody has spoken in yet."""
        welcome, channel = order.welcome, order.letter.address.channel
        session = await self._sessions.current(welcome.key, channel, welcome.principal)
        await self._store.commit(ChangeSession(session.id, _changed_fields(before, after)))

    async def _ask_hooks(
        self, order: CommandRequest, name: str, session: Session | None
    ) -> str | None:
        """None when the command is to be run; else what to answer in its place."""
        welcome, letter = order.welcome, order.letter
        occasion = event_source(letter, welcome.key, session.id if session else "")
        context = occasion.context(command=name, args=order.words)
        if name in _NEVER_BLOCKED:
            self._hooks.emit(command_event(name), context)
            return None
        decision = await self._hooks.decide(command_event(name), context)
        if decision is None:
            return None
        match decision.decision:
            case HookVerdict.ALLOW:
                return None
            case HookVerdict.DENY:
                raise UsageError(decision.message or f"/{name} is not allowed here.")
            case HookVerdict.HANDLED:
                return decision.message

    def activity(self, order: CommandRequest) -> ConversationActivity:
        key = order.welcome.key
        now = self._actors.activity(key)
        done = (
            self._command_queue.doing(key, order.letter)
            if self._command_queue
            else CommandActivity()
        )
        seconds = now.seconds if now.run is not None else done.seconds or 0.0
        running = now.run is not None or done.seconds is not None
        return ConversationActivity(
            running=running, seconds=seconds, waiting=now.waiting + done.waiting
        )

    async def stop(self, welcome: Admitted, run: str) -> StopResult:
        key, only = welcome.key, None if welcome.stops_others else welcome.principal
        ended = StoppedCommands()
        if self._command_queue is not None and not run:
            ended = await self._command_queue.stop(key, only)
        stopped = await self._actors.stop(key, run or None, only)
        overs = [one.over for one in ended.running]
        overs += [stopped.over] if stopped.over is not None else []
        waiting = stopped.waiting + ended.waiting
        if only is not None and not overs and not waiting:
            raise UsageError("Nothing that you have asked is going on here.")
        lingers = False
        for over in overs:
            lingers = lingers or not await sleep_unless(self._clock, STOP_WAIT, over)
        return StopResult(running=bool(overs), waiting=waiting, says_so=True, lingers=lingers)

    async def begin(self, order: CommandRequest, title: str) -> SwitchedSession:
        """What waits was meant for the session that is over, so it is set aside."""
        welcome, channel = order.welcome, order.letter.address.channel
        stopped = await self._actors.stop(welcome.key)
        old = await self._sessions.find(welcome.key)
        if old is not None:
            await self._sessions.end(old, "new")
            emit_session_end(self._hooks, event_source(order.letter, welcome.key, old.id), "new")
        session = await self._sessions.begin(welcome.key, channel, welcome.principal, title)
        occasion = event_source(order.letter, welcome.key, session.id)
        emit_session_reset(self._hooks, occasion, "new")
        return SwitchedSession(session, stopped.waiting)

    async def enter(self, order: CommandRequest, session: Session) -> SwitchedSession:
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
            place = location_of_message(session.id, order.letter, key, self._clock.now())
            change = ChangeSession(session.id, here)
            await self._store.commit(*others, change, place, fence=lease.fence)
            while (left := await self._sessions.find(key)) and left.id != session.id:
                await self._store.commit(ChangeSession(left.id, over), fence=lease.fence)
        return SwitchedSession(session, stopped.waiting)

    def manner(self) -> BusyMode:
        return self._actors.busy

    def change_manner(self, manner: BusyMode) -> None:
        self._actors.change_busy(manner)


class ChatControl:
    """The turns and sessions of one chat, for the commands typed in it."""

    def __init__(self, desk: CommandRunner, order: CommandRequest) -> None:
        self._desk = desk
        self._order = order

    def activity(self) -> ConversationActivity:
        return self._desk.activity(self._order)

    async def stop(self, run: str = "") -> StopResult:
        return await self._desk.stop(self._order.welcome, run)

    async def begin(self, title: str) -> SwitchedSession:
        return await self._desk.begin(self._order, title)

    async def enter(self, session: Session) -> SwitchedSession:
        return await self._desk.enter(self._order, session)

    def manner(self) -> BusyMode | None:
        return self._desk.manner()

    def change_manner(self, manner: BusyMode) -> None:
        self._desk.change_manner(manner)


def command_name(line: str) -> str:
    """In groups, platforms write the name of the bot behind that of the command."""
    return line.split(None, 1)[0].removeprefix("/").partition("@")[0].lower()


async def _run_command(command: Command, context: CommandContext, words: str) -> CommandResult:
    reply = await command.run(context, words)
    match reply:
        case TextReply(text=text) | ResumedReply(text=text):
            return text
        case SubmitReply(parts, manner, told):
            return SubmitMessage(parts, manner, told)
        case QuitReply():
            return "There is nothing to leave here."
        case ScreenReply():
            return "There is no screen here."
        case _:
            assert_never(reply)


def _changed_fields(before: Session, after: Session) -> SessionChange:
    """What a command may set in a session that is not on disk yet."""
    return SessionChange(
        title=_changed_value(before.title, after.title),
        model=_changed_value(before.model, after.model),
        provider=_changed_value(before.provider, after.provider),
        system=_changed_value(before.system, after.system),
        effort=_changed_value(before.effort, after.effort),
        personality=_changed_value(before.personality, after.personality),
    )


def _changed_value(before: str, after: str) -> str | UnsetType:
    return UNSET if after == before else after


NEW_COMMAND = "/new"


class Shortcuts(Struct, frozen=True, kw_only=True):
    """`names` mean other commands, `barred` are commands of a shell, `anew` begins a session."""

    names: Mapping[str, str] = {}
    barred: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()

    def meant(self, text: str) -> str:
        """The command that is meant; the text itself, when it is no shortcut."""
        if text.strip().casefold() in self.anew:
            return NEW_COMMAND
        name, words = _split_command(text)
        given = self.names.get(name)
        return text if given is None else f"{given} {words}".strip()

    def is_shell_shortcut(self, line: str) -> bool:
        return _split_command(line)[0] in self.barred


def shortcuts_from(config: Config, taken: Collection[str]) -> Shortcuts:
    """From `quick_commands` and `reset_triggers`; nobody can give another sense to our names."""
    quick = {
        name.strip().removeprefix("/").lower(): one for name, one in config.quick_commands.items()
    }
    own = {name: one for name, one in quick.items() if name and name not in taken}
    meant = {
        name: (one.target or one.command).strip().removeprefix("/")
        for name, one in own.items()
        if one.type == "alias"
    }
    triggers = {one.strip().casefold() for one in config.reset_triggers}
    return Shortcuts(
        names={f"/{name}": f"/{command}" for name, command in meant.items() if command},
        barred=frozenset(f"/{name}" for name, one in own.items() if one.type == "exec"),
        anew=frozenset(one for one in triggers if one and one.removeprefix("/") not in taken),
    )


def _split_command(text: str) -> tuple[str, str]:
    typed, _, words = text.strip().partition(" ")
    return typed.partition("@")[0].lower(), words.strip()
