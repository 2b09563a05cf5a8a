"""Slash commands from a chat: they act at once, never behind a turn."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, assert_never

from msgspec import Struct

from hermes.commands.command import Ask, Context, Leave, Told
from hermes.commands.registry import Registry
from hermes.gateway.actors import Actors
from hermes.gateway.letters import Busy, Letter, Welcome
from hermes.gateway.sessions import ChatSessions
from hermes.kit.clock import Clock
from hermes.kit.text import plural
from hermes.ports.store import Store
from hermes.schema.errors import UsageError
from hermes.schema.messages import Media, Text
from hermes.session.conversation import Conversation, Origin
from hermes.session.runner import Runner


class Say(Struct, frozen=True):
    """Something to put into the inbox in the person's name."""

    parts: tuple[Text | Media, ...]
    manner: Busy | None = None
    told: str = ""


class Order(Struct, frozen=True):
    """One typed command: who, in which session, and the words behind its name."""

    welcome: Welcome
    letter: Letter
    words: str


Answer: TypeAlias = str | Say
Urgent: TypeAlias = Callable[[Order], Awaitable[Answer]]
"""A command of the gateway itself, such as an answer to a request for approval."""

_ELSEWHERE = frozenset({"resume", "quit", "exit"})
_ALIASES = {"reset": "new"}


class Desk:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        runner: Runner,
        actors: Actors,
        sessions: ChatSessions,
    ) -> None:
        self._store = store
        self._clock = clock
        self._runner = runner
        self._actors = actors
        self._sessions = sessions
        self._registry: Registry | None = None
        self._context: Callable[[Conversation], Context] | None = None
        self._urgent: dict[str, Urgent] = {
            "stop": self._stop,
            "new": self._new,
            "queue": self._queue,
            "steer": self._steer,
            "status": self._status,
            "retry": self._retry,
        }

    def knows(
        self,
        registry: Registry,
        context: Callable[[Conversation], Context],
        urgent: Mapping[str, Urgent],
    ) -> None:
        """The commands of every surface, and more of the gateway's own."""
        self._registry, self._context = registry, context
        self._urgent |= urgent

    async def run(self, welcome: Welcome, letter: Letter, line: str) -> Answer:
        """Raises a `HermesError` that says why not."""
        typed, *words = line.strip().removeprefix("/").split(None, 1)
        # In groups, platforms write the name of the bot behind that of the command.
        name = typed.partition("@")[0].lower()
        name = _ALIASES.get(name, name)
        if welcome.commands is not None and name not in welcome.commands:
            raise UsageError(f"/{name} is not for you here.", hint="/help lists what there is.")
        if name in _ELSEWHERE:
            raise UsageError(f"/{name} works in the terminal only.")
        order = Order(welcome, letter, words[0].strip() if words else "")
        urgent = self._urgent.get(name)
        if urgent is not None:
            return await urgent(order)
        return await self._common(order, f"/{name} {order.words}")

    async def _common(self, order: Order, line: str) -> Answer:
        if self._registry is None or self._context is None:
            raise UsageError("There are no commands here.")
        reply = await self._registry.run(self._context(await self._talk(order)), line)
        match reply:
            case Told(text):
                return text
            case Ask(parts):
                return Say(parts)
            case Leave():
                return "There is nothing to leave here."
            case _:
                assert_never(reply)

    async def _talk(self, order: Order) -> Conversation:
        welcome, channel = order.welcome, order.letter.address.channel
        session = await self._sessions.current(welcome.key, channel, welcome.principal)
        origin = Origin(source=channel, cwd=session.cwd, principal=session.principal)
        talk = Conversation(self._store, self._clock, self._runner, origin)
        await talk.resume(session.id)
        return talk

    async def _stop(self, order: Order) -> Answer:
        stopped = await self._actors.stop(order.welcome.key, order.words or None)
        aside = plural(stopped.waiting, "waiting message")
        if stopped.run is not None:
            # The run itself says that it was stopped.
            return f"Set aside {aside}, too." if stopped.waiting else ""
        if stopped.waiting:
            return f"Stopped. Set aside {aside}."
        return "Nothing is running."

    async def _new(self, order: Order) -> Answer:
        welcome, channel = order.welcome, order.letter.address.channel
        await self._actors.stop(welcome.key)
        old = await self._sessions.find(welcome.key)
        if old is not None:
            await self._sessions.end(old, "new")
        session = await self._sessions.begin(welcome.key, channel, welcome.principal, order.words)
        return f"New session {session.id}."

    async def _queue(self, order: Order) -> Answer:
        if not order.words:
            raise UsageError("There is nothing to queue.", hint="For example: /queue and the tests")
        busy = self._actors.activity(order.welcome.key).run is not None
        return Say((Text(order.words),), Busy.QUEUE, "Queued." if busy else "")

    async def _steer(self, order: Order) -> Answer:
        if not order.words:
            raise UsageError("There is nothing to say.", hint="For example: /steer use the other")
        busy = self._actors.activity(order.welcome.key).run is not None
        return Say((Text(order.words),), Busy.STEER, "Passed on." if busy else "")

    async def _status(self, order: Order) -> Answer:
        activity = self._actors.activity(order.welcome.key)
        doing = f"running for {activity.seconds:.0f} s" if activity.run else "idle"
        lines = [f"  now  {doing}, {plural(activity.waiting, 'message')} waiting"]
        if self._registry is not None:
            told = await self._common(order, "/status")
            lines = [*([told] if isinstance(told, str) else []), *lines]
        return "\n".join(lines)

    async def _retry(self, order: Order) -> Answer:
        talk = await self._talk(order)
        (question,) = await talk.undo(1)
        return Say(question.parts)
