"""Use the agent as a library: stream its events, or just get the answer."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
from msgspec import Struct

from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env, process_env
from hermes.config.home import resolve_home
from hermes.schema.errors import HermesError, UsageError
from hermes.schema.events import Delta, Event, MessageAdded, Outcome, RunEnded
from hermes.schema.messages import Media, Message, Text, final_text

EVENT_BUFFER = 1024


class Answer(Struct, frozen=True):
    """The result of a turn: its text, all of its messages, and how it ended."""

    text: str
    messages: tuple[Message, ...]
    ended: RunEnded


async def collect(
    app: App, parts: Sequence[Text | Media], on_event: Callable[[Event], None] = lambda _: None
) -> Answer:
    """Run a turn and collect its messages; `on_event` is called with every event."""
    messages: list[Message] = []
    ended: RunEnded | None = None

    async def listen(event: Event) -> None:
        nonlocal ended
        if isinstance(event, MessageAdded):
            messages.append(event.message)
        elif isinstance(event, RunEnded):
            ended = event
        on_event(event)

    outcome = await app.conversation.submit(parts, listen)
    # A turn interrupted before it started emits no end event.
    last = ended or RunEnded("", outcome, "Interrupted.", "cancelled")
    return Answer(final_text(messages), tuple(messages), last)


def error_of_run(ended: RunEnded) -> HermesError:
    """Return the error with which a turn ended."""
    return _errors_by_code(HermesError).get(ended.code, HermesError)(ended.reason)


def _errors_by_code(root: type[HermesError]) -> dict[str, type[HermesError]]:
    errors = {root.code: root}
    for kind in root.__subclasses__():
        errors |= _errors_by_code(kind)
    return errors


class Agent:
    """One conversation with an agent; use it as `async with Agent() as agent`.

    Settings, keys and sessions come from the home, as on the command line; arguments take
    precedence.
    """

    def __init__(
        self,
        choices: AppOptions | None = None,
        *,
        home: str | os.PathLike[str] | None = None,
        profile: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        toolsets: Sequence[str] | None = None,
    ) -> None:
        """`choices` replaces all other options, for what the arguments do not cover."""
        if choices is not None and (model or provider or toolsets is not None):
            raise UsageError("Pass either choices, or model, provider and toolsets, not both.")
        self._choices = choices or AppOptions(
            model=model,
            provider=provider,
            toolsets=None if toolsets is None else tuple(toolsets),
            source="library",
            workspace=str(Path.cwd()),
        )
        env = Env(process_env())
        self._env = env if home is None else env.overlaid({"HERMES_HOME": os.fspath(home)})
        self._profile = profile
        self._stack = AsyncExitStack()
        self._app: App | None = None
        self._busy = False

    async def __aenter__(self) -> Self:
        home = resolve_home(self._env, self._profile)
        opening = open_app(home, self._env, self._choices)
        self._app = await self._stack.enter_async_context(opening)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._app = None

    @property
    def app(self) -> App:
        if self._app is None:
            raise UsageError(
                "This agent is not open.", hint="Use it as: async with Agent() as agent"
            )
        return self._app

    @property
    def session(self) -> str:
        return self.app.conversation.session.id

    async def resume(self, name: str) -> None:
        """Resume a session by its id or title. Raises `NotFound`."""
        await self.app.conversation.resume(name)

    async def ask(self, prompt: str) -> str:
        """Return the answer's text. Raises if the turn did not complete, unlike `answer`."""
        answer = await self.answer(prompt)
        if answer.ended.outcome is not Outcome.DONE:
            raise error_of_run(answer.ended)
        return answer.text

    async def answer(self, prompt: str) -> Answer:
        """Run one turn and return its result, however it ends."""
        with self._turn():
            return await collect(self.app, [Text(prompt)])

    @asynccontextmanager
    async def events(self, prompt: str) -> AsyncGenerator[AsyncIterator[Event]]:
        """Stream a turn's events. Leaving the block early ends the turn.

        A reader that is too slow misses deltas, never facts.
        """
        send, receive = anyio.create_memory_object_stream[Event](EVENT_BUFFER)
        turn = anyio.CancelScope()
        failures: list[Exception] = []

        async def listen(event: Event) -> None:
            with suppress(anyio.BrokenResourceError):
                if isinstance(event, Delta):
                    with suppress(anyio.WouldBlock):
                        send.send_nowait(event)
                else:
                    await send.send(event)

        async def drive() -> None:
            async with send:
                with turn:
                    try:
                        await self.app.conversation.submit([Text(prompt)], listen)
                    except Exception as error:  # noqa: BLE001 - raised to the reader, below
                        failures.append(error)

        with self._turn():
            try:
                async with anyio.create_task_group() as group, receive:
                    group.start_soon(drive)
                    try:
                        yield receive
                    finally:
                        turn.cancel()
            except BaseExceptionGroup as errors:
                # The turn's errors are collected, so this is the reader's error.
                raise errors.exceptions[0] from None
            if failures:
                raise failures[0]

    def interrupt(self) -> bool:
        """Interrupt the running turn; return False if there is none."""
        return self.app.conversation.interrupt()

    @contextmanager
    def _turn(self) -> Generator[None]:
        if self._busy:
            raise UsageError(
                "This agent is already running a turn.",
                hint="An agent is one conversation; open a second one to run two at a time.",
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
