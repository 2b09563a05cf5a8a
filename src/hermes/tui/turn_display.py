"""Render the events of a turn as widgets, and pass them from its thread to the screen."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

from hermes.kit.clock import Clock
from hermes.kit.terminal_text import single_line
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    StreamReset,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Trust, User, text_of
from hermes.schema.questions import Question
from hermes.tui.chat_deps import ChatDeps
from hermes.tui.client import MessageParts
from hermes.tui.display_text import chat_hint
from hermes.tui.options import DisplayOptions
from hermes.tui.widgets.cards import ThinkingCard, ToolCard, is_todo_list
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.todo import TodoPanel
from hermes.tui.widgets.transcript import Answer, Note, Transcript, UserMessage, report_note

MIN_INTERVAL = 0.05
"""Seconds between two updates; faster deltas are drawn together."""
IDLE_FACTOR = 3.0
"""Idle time after an update as a multiple of its duration, so that keys stay responsive."""


class EventRenderer:
    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        received_steering: Callable[[str], str | None],
        display: DisplayOptions,
        todo: TodoPanel,
    ) -> None:
        """`received_steering` returns the steering message with an id, if it was sent from here."""
        self._received_steering = received_steering
        self._transcript = transcript
        self._clock = clock
        self.display = display
        self._todo = todo
        self._answer: Answer | None = None
        self._thinking: ThinkingCard | None = None
        self._cards: dict[str, tuple[ToolCard, float]] = {}
        self._requested: dict[str, ToolCall] = {}
        """Calls of the last answer that were not started."""
        self._questions: dict[str, QuestionCard] = {}
        self._transient_note: Note | None = None
        self._reset_reason = ""
        self._asked_at = 0.0
        self.ended: RunEnded | None = None
        self.used_tokens = 0
        """Tokens in the context window after the last answer."""
        self.activity = ""

    @property
    def question(self) -> QuestionCard | None:
        """The open question."""
        return next((card for card in self._questions.values() if card.open), None)

    def begin(self) -> None:
        self.ended = None
        self.activity = "working"

    async def render(self, event: Event) -> None:
        await self._remove_transient()
        match event:
            case TextDelta(text=text):
                await self._add_text(text)
            case ReasoningDelta(text=text):
                await self._add_reasoning(text)
            case ToolStarted(call=call):
                await self._add_card(call)
            case ToolProgress(call=call, text=text):
                if call in self._cards:
                    self._cards[call][0].add_progress(text)
            case MessageAdded(message=message):
                await self._add_message(message)
            case QuestionAsked(question=question):
                await self._open_question(question)
            case QuestionAnswered():
                await self._close_question(event)
            case StreamReset() | Notice() | RunStarted() | RunEnded():
                await self._handle_notice(event)
            case _:
                assert_never(event)

    async def end(self) -> None:
        """Close all open cards and questions."""
        await self._remove_transient()
        self._close_block()
        for card, _ in self._cards.values():
            card.mark_interrupted()
        self._cards.clear()
        self._requested.clear()
        for question in self._questions.values():
            if question.open:
                await question.close_question("")
        self._questions.clear()
        self.activity = ""

    async def _add_card(self, call: ToolCall) -> None:
        self._requested.pop(call.id, None)
        self._close_block()
        card = ToolCard(call, self.display)
        self._cards[call.id] = (card, self._clock.monotonic())
        self.activity = single_line(call.name)
        await self._transcript.add(card)

    async def _add_text(self, text: str) -> None:
        self._close_thinking()
        if self._answer is None:
            if not (text := text.lstrip("\n")):
                return
            self._answer = Answer(raw=self.display.raw)
            self.activity = "answering"
            await self._transcript.add(self._answer)
        await self._answer.add(text)

    async def _add_reasoning(self, text: str) -> None:
        if self._thinking is None:
            if not text.strip():
                return
            self._close_block()
            self.activity = "thinking"
            if not self.display.reasoning:
                return
            self._thinking = ThinkingCard()
            await self._transcript.add(self._thinking)
            if self.display.reasoning_open:
                await self._thinking.open()
        self._thinking.add(text)

    def _close_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.end()
            self._thinking = None

    def _close_block(self) -> None:
        """The next text starts a new block."""
        self._close_thinking()
        self._answer = None

    async def _add_message(self, message: Message) -> None:
        if isinstance(message, Assistant):
            await self._complete_answer(message)
            self._close_block()
            self._requested = {call.id: call for call in message.calls}
            if message.usage.input:
                self.used_tokens = message.usage.input + message.usage.output
        elif isinstance(message, Result) and message.call in (self._cards | self._requested):
            if message.call in self._requested:
                # It was never started, such as a call of an unknown tool.
                await self._add_card(self._requested[message.call])
            card, began = self._cards.pop(message.call)
            await card.end(message, self._clock.monotonic() - began)
            if is_todo_list(card.call, message):
                self._todo.show_list(message.shown)
            self.activity = "working"
        elif isinstance(message, User):
            await self._add_user_message(message)

    async def _add_user_message(self, message: User) -> None:
        """Show a steering message where the turn received it, and a report as a note."""
        if (text := self._received_steering(message.id)) is not None:
            self._close_block()
            at = self._clock.now() if self.display.times else None
            await self._transcript.add(UserMessage(text, at))
        elif message.trust is Trust.DATA:
            self._close_block()
            await self._transcript.add(report_note(text_of(message)))

    async def _complete_answer(self, message: Assistant) -> None:
        """Show the whole message if deltas were lost."""
        shown = self._answer.text.strip() if self._answer is not None else ""
        if shown == message.text.strip():
            return
        if self._answer is not None:
            await self._answer.remove()
            self._answer = None
        await self._add_text(message.text)

    async def _close_question(self, event: QuestionAnswered) -> None:
        self.activity = "working"
        # Waiting for the user does not count as duration of the call.
        waited = self._clock.monotonic() - self._asked_at
        self._cards = {id_: (card, at + waited) for id_, (card, at) in self._cards.items()}
        if (card := self._questions.pop(event.question, None)) is not None:
            await card.close_question(event.answer, expired=True)

    async def _open_question(self, question: Question) -> None:
        self._close_block()
        card = QuestionCard(question, self._clock)
        self._questions[question.id] = card
        self._asked_at = self._clock.monotonic()
        self.activity = "waiting for you"
        await self._transcript.add(card)

    async def _handle_notice(self, event: StreamReset | Notice | RunStarted | RunEnded) -> None:
        match event:
            case StreamReset(reason=reason):
                if self._answer is not None:
                    await self._answer.remove()
                self._close_block()
                self._reset_reason = reason
                await self._add_note(f"{reason}; restarting the answer.")
            case Notice(text=text, passing=passing, refused=refused):
                # The reason of a restart was just shown.
                repeated, self._reset_reason = text == self._reset_reason, ""
                if not repeated:
                    note = await self._add_note(text, "error" if refused else "warning")
                    self._transient_note = note if passing else None
            case RunEnded(reason=reason, outcome=outcome):
                self.ended = event
                self._close_block()
                if reason:
                    failed = outcome is Outcome.FAILED
                    await self._add_note(chat_hint(reason), "error" if failed else "warning")
            case RunStarted():
                self.activity = "thinking"

    async def _add_note(self, text: str, kind: str = "warning") -> Note:
        note = Note(single_line(text), kind)
        await self._transcript.add(note)
        return note

    async def _remove_transient(self) -> None:
        if self._transient_note is not None:
            await self._transient_note.remove()
            self._transient_note = None


class EventBuffer:
    """Collect events and merge deltas; `call` is invoked once per batch."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._deltas: list[str] = []
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._called = False

    def put(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, TextDelta | ReasoningDelta):
                if type(event) is not self._kind:
                    self._join()
                    self._kind = type(event)
                self._deltas.append(event.text)
            else:
                self._join()
                self._events.append(event)
            was_called, self._called = self._called, True
        if not was_called:
            self._call()

    def take(self) -> list[Event]:
        with self._lock:
            self._join()
            events, self._events = self._events, []
            self._called = False
        return events

    def _join(self) -> None:
        if self._deltas:
            self._events.append(self._kind("".join(self._deltas)))
            self._deltas = []


class PumpObserver(Protocol):
    """Is notified about questions and changes."""

    def question_asked(self, card: QuestionCard) -> None: ...

    def question_expired(self, keys: frozenset[str]) -> None:
        """`keys` would have answered it."""
        ...

    def refresh_status(self) -> None: ...


class EventPump:
    def __init__(self, renderer: EventRenderer, clock: Clock, observer: PumpObserver) -> None:
        self._renderer = renderer
        self._clock = clock
        self._observer = observer
        self._events_ready = asyncio.Event()
        self._writing = asyncio.Lock()
        self._buffer = EventBuffer(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.put = self._buffer.put
        """Thread-safe."""

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events_ready.set)

    async def run(self) -> None:
        """Render events until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self._events_ready.wait()
            began = self._clock.monotonic()
            await self.flush()
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(MIN_INTERVAL, IDLE_FACTOR * took))

    async def flush(self) -> None:
        """Render the events received so far."""
        async with self._writing:
            self._events_ready.clear()
            for event in self._buffer.take():
                before = self._renderer.question
                if isinstance(event, QuestionAnswered) and not event.answer and before is not None:
                    self._observer.question_expired(before.keys)
                await self._renderer.render(event)
                card = self._renderer.question
                if card is not None and card is not before:
                    self._observer.question_asked(card)
        self._observer.refresh_status()


class TurnDisplay:
    def __init__(self, deps: ChatDeps, renderer: EventRenderer, event_pump: EventPump) -> None:
        self._deps = deps
        self._renderer = renderer
        self._event_pump = event_pump
        self._began: float | None = None
        self.cost: float | None = None
        """Dollars, None if unknown."""
        self.closed = False
        """The screen is closing: render nothing more."""

    @property
    def running(self) -> bool:
        return self._began is not None

    @property
    def seconds(self) -> float | None:
        """Duration of the running turn, or None."""
        return None if self._began is None else self._deps.clock.monotonic() - self._began

    async def run(
        self, parts: MessageParts, images: Sequence[str], changed: Callable[[], None]
    ) -> None:
        """Run a turn and render its events. Raises `HermesError`."""
        client = self._deps.client
        self._renderer.begin()
        self._began = self._deps.clock.monotonic()
        changed()
        try:
            await self._deps.turn_worker.run(
                lambda: client.submit(parts, images, self._event_pump.put)
            )
        finally:
            self._began = None
            if not self.closed:
                await self._event_pump.flush()
                await self._renderer.end()

    async def add_cost(self) -> None:
        """Add the cost of the last turn."""
        if (ended := self._renderer.ended) is not None:
            spent = await self._deps.turn_worker.run(lambda: self._deps.client.cost(ended))
            if spent is not None:
                self.cost = (self.cost or 0.0) + spent
