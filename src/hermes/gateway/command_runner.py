"""Run slash commands from chats, independently of running turns."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias, assert_never

from msgspec import UNSET, Struct, structs

from hermes.commands.command import Command, CommandContext
from hermes.commands.registry import Registry
from hermes.commands.surface import (
    CommandCaller,
    ConversationActivity,
    Person,
    StopResult,
    Surface,
    SwitchedSession,
)
from hermes.config.schema import Config
from hermes.gateway.actor_pool import STOP_WAIT, ActorPool
from hermes.gateway.chat_sessions import ChatSessions
from hermes.gateway.command_queue import (
    CommandQueue,
    CommandResult,
    StoppedCommands,
    SubmitMessage,
)
from hermes.gateway.followups import put_session_location
from hermes.gateway.hook_events import (
    command_event,
    emit_session_end,
    emit_session_reset,
    event_source,
)
from hermes.gateway.hooks import Hooks, HookVerdict
from hermes.gateway.messages import Admitted, InboxMessage
from hermes.gateway.people import account_of
from hermes.gateway.questions import NOT_A_QUESTION, QuestionPosts
from hermes.kit.clock import Clock
from hermes.kit.tasks import sleep_unless
from hermes.ports.store import ChangeSession, Store
from hermes.schema.errors import UsageError
from hermes.schema.scope import platform_of
from hermes.schema.sessions import Session, SessionChange
from hermes.schema.terminal import (
    BusyMode,
    QuitReply,
    ResumedReply,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.session.conversation import Conversation, SessionOptions
from hermes.session.keys import DIRECT_CHAT
from hermes.session.runner import Runner


class CommandRequest(Struct, frozen=True):
    """One typed command: the caller, the message and the arguments."""

    admitted: Admitted
    message: InboxMessage
    args: str


GatewayCommand: TypeAlias = Callable[[CommandRequest], Awaitable[CommandResult]]
"""A command of the gateway itself, such as an answer to an approval request."""

IMMEDIATE_COMMANDS = frozenset({"stop", "status", "approve", "deny", "help", "whoami"})
"""Commands that do not wait for earlier ones."""
_NEVER_BLOCKED = frozenset({"stop"})
"""Commands that hooks cannot block."""


class CommandRunner:
    """Runs the gateway's `own_commands`, and those of `registry`, which all surfaces share."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        runner: Runner,
        actors: ActorPool,
        sessions: ChatSessions,
        questions: QuestionPosts,
        command_queue: CommandQueue,
        registry: Registry,
        context: Callable[[Conversation], CommandContext],
        own_commands: Mapping[str, GatewayCommand],
        hooks: Hooks | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._actors = actors
        self._sessions = sessions
        self._questions = questions
        self._command_queue = command_queue
        self._registry = registry
        self._context = context
        self._own_commands = own_commands
        self._hooks = hooks

    async def run(self, admitted: Admitted, message: InboxMessage, line: str) -> CommandResult:
        """Run a command line; raises HermesError with a message for the user."""
        name, args = command_name(line), line.split(None, 1)[1:]
        request = CommandRequest(admitted, message, args[0].strip() if args else "")
        own = self._own_commands.get(name)
        if own is None:
            return await self._run_shared(request, name)
        if admitted.commands is not None and name not in admitted.commands:
            raise UsageError(f"You cannot use /{name} here.", hint="/help lists your commands.")
        handled = await self._ask_hooks(request, name, await self._sessions.find(admitted.key))
        return await own(request) if handled is None else handled

    async def _run_shared(self, request: CommandRequest, name: str) -> CommandResult:
        conversation = await self._conversation(request)
        message = request.message
        question = await self._questions.question_in(message.address, message.reply_to)
        # A reply to another post may be about that post.
        question = question or (NOT_A_QUESTION if message.reply_to else "")
        context = self._with_caller(request, self._context(conversation), conversation, question)
        command = self._registry.resolve(context, name)
        handled = await self._ask_hooks(request, command.name, conversation.session)
        if handled is not None:
            return handled
        before = conversation.session
        answer = await _run_command(command, context, request.args)
        if not conversation.started and conversation.session != before:
            # Store what a command changed in a session that has no messages yet.
            admitted, channel = request.admitted, message.address.channel
            session = await self._sessions.current(admitted.key, channel, admitted.principal)
            change = _changed_fields(before, conversation.session)
            await self._store.commit(ChangeSession(session.id, change))
        return answer

    def _with_caller(
        self,
        request: CommandRequest,
        context: CommandContext,
        conversation: Conversation,
        question: str,
    ) -> CommandContext:
        admitted, message = request.admitted, request.message
        caller = CommandCaller(
            surface=Surface.CHAT,
            person=Person(id=message.asker.user, name=message.asker.name, ids=admitted.ids),
            address=message.address,
            principal=admitted.principal,
            platform=platform_of(message.address.channel),
            account=account_of(message.address.channel, message.asker.user),
            direct=admitted.chat is not None and admitted.chat.kind == DIRECT_CHAT,
            permitted=admitted.commands,
            # In a shared chat the session may be another user's; the archive is the caller's own.
            archive=self._store.archive_for(admitted.principal),
            control=ChatControl(self, self._actors, request),
            question=question,
        )
        return structs.replace(
            context, conversation=conversation, role=admitted.role, caller=caller
        )

    async def _conversation(self, request: CommandRequest) -> Conversation:
        """Return the chat's conversation; if none is open, a new one that is not stored yet."""
        admitted, channel = request.admitted, request.message.address.channel
        session = await self._sessions.find(admitted.key)
        options = SessionOptions(
            source=platform_of(channel),
            key=admitted.key,
            cwd=session.cwd if session else "",
            principal=session.principal if session else admitted.principal,
        )
        conversation = Conversation(self._store, self._clock, self._runner, options)
        if session is not None:
            await conversation.resume(session.id)
        return conversation

    async def _ask_hooks(
        self, request: CommandRequest, name: str, session: Session | None
    ) -> str | None:
        """Return None if the command may run, or the reply to send instead."""
        if self._hooks is None:
            return None
        admitted, message = request.admitted, request.message
        source = event_source(message, admitted.key, session.id if session else "")
        context = source.context(command=name, args=request.args)
        if name in _NEVER_BLOCKED:
            self._hooks.emit(command_event(name), context)
            return None
        if (decision := await self._hooks.decide(command_event(name), context)) is None:
            return None
        match decision.decision:
            case HookVerdict.DENY:
                raise UsageError(decision.message or f"/{name} is not allowed here.")
            case HookVerdict.HANDLED:
                return decision.message
            case HookVerdict.ALLOW:
                return None

    def activity(self, request: CommandRequest) -> ConversationActivity:
        key = request.admitted.key
        now = self._actors.activity(key)
        commands = self._command_queue.activity(key, request.message)
        seconds = now.seconds if now.run is not None else commands.seconds or 0.0
        running = now.run is not None or commands.seconds is not None
        return ConversationActivity(
            running=running, seconds=seconds, queued=now.waiting + commands.waiting
        )

    async def stop(self, admitted: Admitted, run: str) -> StopResult:
        key, only = admitted.key, None if admitted.may_stop_others else admitted.principal
        commands = StoppedCommands() if run else await self._command_queue.stop(key, only)
        stopped = await self._actors.stop(key, run or None, only)
        endings = [command.finished for command in commands.running]
        endings += [stopped.finished] if stopped.finished is not None else []
        running = bool(endings) or stopped.run is not None
        waiting = stopped.waiting + commands.waiting
        if only is not None and not running and not waiting:
            raise UsageError("Nothing you asked for is running here.")
        lingers = stopped.is_slow
        for ending in endings:
            lingers = lingers or not await sleep_unless(self._clock, STOP_WAIT, ending)
        return StopResult(running=running, dropped=waiting, reports_itself=True, is_slow=lingers)

    async def start_session(self, request: CommandRequest, title: str) -> SwitchedSession:
        """Begin a new session and drop the messages waiting for the old one."""
        admitted, channel = request.admitted, request.message.address.channel
        stopped = await self._actors.stop(admitted.key)
        old = await self._sessions.find(admitted.key)
        if old is not None:
            await self._sessions.end(old, "new")
        session = await self._sessions.begin(admitted.key, channel, admitted.principal, title)
        if self._hooks is not None:
            if old is not None:
                ended = event_source(request.message, admitted.key, old.id)
                emit_session_end(self._hooks, ended, "new")
            source = event_source(request.message, admitted.key, session.id)
            emit_session_reset(self._hooks, source, "new")
        return SwitchedSession(session, stopped.waiting)

    async def switch_session(self, request: CommandRequest, session: Session) -> SwitchedSession:
        """Continue the chat in that session and end the one open there."""
        key = request.admitted.key
        async with self._runner.holding(session.id) as lease:
            stopped = await self._actors.stop(key)
            # The prompt describes another chat, so it is rebuilt.
            system = UNSET if session.key == key else ""
            moved = SessionChange(key=key, system=system, ended_at=None, end_reason="")
            ended = SessionChange(ended_at=self._clock.now(), end_reason="resumed another")
            current = await self._sessions.find(key)
            others = [] if current is None else [ChangeSession(current.id, ended)]
            location = put_session_location(session.id, request.message, key)
            change = ChangeSession(session.id, moved)
            await self._store.commit(*others, change, location, fence=lease.fence)
            while (other := await self._sessions.find(key)) and other.id != session.id:
                await self._store.commit(ChangeSession(other.id, ended), fence=lease.fence)
        return SwitchedSession(session, stopped.waiting)


class ChatControl:
    """Controls the turns and sessions of one chat for its commands."""

    def __init__(self, runner: CommandRunner, actors: ActorPool, request: CommandRequest) -> None:
        self._runner = runner
        self._actors = actors
        self._request = request

    def activity(self) -> ConversationActivity:
        return self._runner.activity(self._request)

    async def stop(self, run: str = "") -> StopResult:
        return await self._runner.stop(self._request.admitted, run)

    async def start_session(self, title: str) -> SwitchedSession:
        return await self._runner.start_session(self._request, title)

    async def resume_session(self, session: Session) -> SwitchedSession:
        return await self._runner.switch_session(self._request, session)

    def busy_mode(self) -> BusyMode | None:
        return self._actors.busy

    def set_busy_mode(self, mode: BusyMode) -> None:
        self._actors.change_busy(mode)


def command_name(line: str) -> str:
    """Return the command's name without the bot name that platforms append in groups."""
    return line.split(None, 1)[0].removeprefix("/").partition("@")[0].lower()


async def _run_command(command: Command, context: CommandContext, args: str) -> CommandResult:
    reply = await command.run(context, args)
    match reply:
        case TextReply(text=text) | ResumedReply(text=text):
            return text
        case SubmitReply(parts, busy_mode, notice):
            return SubmitMessage(parts, busy_mode, notice)
        case QuitReply():
            return "There is nothing to quit here."
        case ScreenReply():
            return "This command works only in a terminal."
        case _:
            assert_never(reply)


def _changed_fields(before: Session, after: Session) -> SessionChange:
    """Return what a command changed of what it may set in a session that is not stored yet."""
    names = ("title", "model", "provider", "system", "effort", "personality")
    changed = [name for name in names if getattr(after, name) != getattr(before, name)]
    return SessionChange(**{name: getattr(after, name) for name in changed})


NEW_COMMAND = "/new"


class Shortcuts(Struct, frozen=True, kw_only=True):
    """`aliases` expand to commands, `shell` run in a shell, `new_session` starts a session."""

    aliases: Mapping[str, str] = {}
    shell: frozenset[str] = frozenset()
    new_session: frozenset[str] = frozenset()

    def expand(self, text: str) -> str:
        """Expand a shortcut to its command; other text is returned unchanged."""
        if text.strip().casefold() in self.new_session:
            return NEW_COMMAND
        name, args = _split_command(text)
        target = self.aliases.get(name)
        return text if target is None else f"{target} {args}".strip()

    def is_shell_shortcut(self, line: str) -> bool:
        return _split_command(line)[0] in self.shell


def shortcuts_from(config: Config, taken: Collection[str]) -> Shortcuts:
    """Read `quick_commands` and `reset_triggers`; built-in names cannot be overridden."""
    quick = {
        name.strip().removeprefix("/").lower(): entry
        for name, entry in config.quick_commands.items()
    }
    own = {name: entry for name, entry in quick.items() if name and name not in taken}
    aliases = {
        name: (entry.target or entry.command).strip().removeprefix("/")
        for name, entry in own.items()
        if entry.type == "alias"
    }
    triggers = {entry.strip().casefold() for entry in config.reset_triggers}
    return Shortcuts(
        aliases={f"/{name}": f"/{command}" for name, command in aliases.items() if command},
        shell=frozenset(f"/{name}" for name, entry in own.items() if entry.type == "exec"),
        new_session=frozenset(
            entry for entry in triggers if entry and entry.removeprefix("/") not in taken
        ),
    )


def _split_command(text: str) -> tuple[str, str]:
    typed, _, args = text.strip().partition(" ")
    return typed.partition("@")[0].lower(), args.strip()
