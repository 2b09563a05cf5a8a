"""Render the events of a turn as widgets."""

from collections.abc import Callable
from typing import assert_never

from hermes.kit.clock import Clock
from hermes.kit.terminal_text import headline, single_line
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
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
from hermes.schema.messages import Assistant, Message, Result, Trust, User, text_of
from hermes.schema.questions import Question
from hermes.tui.display_options import DisplayOptions
from hermes.tui.widgets.cards import ThinkingCard, ToolCard
from hermes.tui.widgets.messages import Answer, Note, UserMessage
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.transcript import Transcript

_MAX_HEADLINE = 200
"""Characters shown of an incoming report."""


class EventRenderer:
    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        received_steering: Callable[[str], str | None],
        display: DisplayOptions,
    ) -> None:
        """`received_steering` returns the steering message with an id, if it was sent from here."""
        self._received_steering = received_steering
        self._transcript = transcript
        self._clock = clock
        self.display = display
        self._answer: Answer | None = None
        self._thinking: ThinkingCard | None = None
        self._cards: dict[str, tuple[ToolCard, float]] = {}
        self._questions: dict[str, QuestionCard] = {}
        self._transient_note: Note | None = None
        self._asked_at = 0.0
        self.ended: RunEnded | None = None
        self.used = 0
        """Tokens in the context window after the last answer."""
        self.doing = ""

    @property
    def question(self) -> QuestionCard | None:
        """The open question."""
        return next((card for card in self._questions.values() if card.open), None)

    def begin(self) -> None:
        self.ended = None
        self.doing = "working"

    async def write(self, event: Event) -> None:
        await self._remove_transient()
        match event:
            case TextDelta(text=text):
                await self._add_text(text)
            case ReasoningDelta(text=text):
                await self._add_reasoning(text)
            case ToolStarted(call=call):
                await self._close_block()
                card = ToolCard(call, self.display)
                self._cards[call.id] = (card, self._clock.monotonic())
                self.doing = single_line(call.name)
                await self._transcript.add(card)
            case ToolProgress(call=call, text=text):
                if call in self._cards:
                    self._cards[call][0].add_progress(text)
            case MessageAdded(message=message):
                await self._add_message(message)
            case QuestionAsked() | QuestionAnswered():
                await self._handle_question(event)
            case StreamReset() | Notice() | RunStarted() | RunEnded():
                await self._handle_notice(event)
            case _:
                assert_never(event)

    async def end(self) -> None:
        """Close all open cards and questions."""
        await self._remove_transient()
        await self._close_block()
        for card, _ in self._cards.values():
            card.mark_interrupted()
        self._cards.clear()
        for question in self._questions.values():
            if question.open:
                await question.close_question("")
        self._questions.clear()
        self.doing = ""

    async def _add_text(self, text: str) -> None:
        self._close_thinking()
        if self._answer is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._answer = Answer(raw=self.display.raw)
            self.doing = "answering"
            await self._transcript.add(self._answer)
        await self._answer.add(text)

    async def _add_reasoning(self, text: str) -> None:
        if self._thinking is None:
            if not text.strip():
                return
            await self._close_block()
            self.doing = "thinking"
            if not self.display.reasoning:
                return
            self._thinking = ThinkingCard()
            await self._transcript.add(self._thinking)
            if self.display.open:
                await self._thinking.open()
        self._thinking.add(text)

    def _close_thinking(self) -> None:
        if self._thinking is not None:
            self._thinking.end()
            self._thinking = None

    async def _close_block(self) -> None:
        """The next text starts a new block."""
        self._close_thinking()
        self._answer = None

    async def _add_message(self, message: Message) -> None:
        if isinstance(message, Assistant):
            await self._complete_answer(message)
            await self._close_block()
            if message.usage.input:
                self.used = message.usage.input + message.usage.output
        elif isinstance(message, Result) and message.call in self._cards:
            card, began = self._cards.pop(message.call)
            await card.end(message, self._clock.monotonic() - began)
            self.doing = "working"
        elif isinstance(message, User):
            await self._add_user_message(message)

    async def _add_user_message(self, message: User) -> None:
        """Show a steering message where the turn received it, and a report as a note."""
        text = self._received_steering(message.id)
        if text is not None:
            await self._close_block()
            at = self._clock.now() if self.display.times else None
            await self._transcript.add(UserMessage(text, at))
        elif message.trust is Trust.DATA:
            await self._close_block()
            await self._transcript.add(Note(f"● {headline(text_of(message), _MAX_HEADLINE)}"))

    async def _complete_answer(self, message: Assistant) -> None:
        """Show the whole message if deltas were lost."""
        shown = self._answer.text.strip() if self._answer is not None else ""
        text = message.text
        if shown == text.strip():
            return
        if self._answer is not None:
            await self._answer.remove()
            self._answer = None
        await self._add_text(text)

    async def _handle_question(self, event: QuestionAsked | QuestionAnswered) -> None:
        if isinstance(event, QuestionAsked):
            await self._open_question(event.question)
            return
        self.doing = "working"
        # Waiting for the user does not count as duration of the call.
        waited = self._clock.monotonic() - self._asked_at
        self._cards = {id_: (card, at + waited) for id_, (card, at) in self._cards.items()}
        card = self._questions.pop(event.question, None)
        if card is not None:
            await card.close_question(event.answer, lapsed=True)

    async def _open_question(self, question: Question) -> None:
        await self._close_block()
        card = QuestionCard(question, self._clock)
        self._questions[question.id] = card
        self._asked_at = self._clock.monotonic()
        self.doing = "waiting for you"
        await self._transcript.add(card)

    async def _handle_notice(self, event: StreamReset | Notice | RunStarted | RunEnded) -> None:
        match event:
            case StreamReset(reason=reason):
                if self._answer is not None:
                    await self._answer.remove()
                await self._close_block()
                await self._add_note(f"{reason}; restarting the answer.")
            case Notice(text=text, passing=passing):
                note = await self._add_note(text)
                self._transient_note = note if passing else None
            case RunEnded(reason=reason):
                self.ended = event
                await self._close_block()
                if reason:
                    await self._add_note(reason)
            case RunStarted():
                self.doing = "thinking"

    async def _add_note(self, text: str) -> Note:
        note = Note(single_line(text), "warning")
        await self._transcript.add(note)
        return note

    async def _remove_transient(self) -> None:
        """Remove the transient note."""
        if self._transient_note is not None:
            await self._transient_note.remove()
            self._transient_note = None
