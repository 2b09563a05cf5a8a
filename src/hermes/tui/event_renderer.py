"""Writes down what a turn tells, as things on the screen."""

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
from hermes.tui.widgets.messages import Answer, Note
from hermes.tui.widgets.messages import UserMessage as Words
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.transcript import Transcript

_MAX_HEADLINE = 200
"""Characters of what was brought that are shown."""


class EventRenderer:
    def __init__(
        self,
        transcript: Transcript,
        clock: Clock,
        received_steering: Callable[[str], str | None],
        display: DisplayOptions,
    ) -> None:
        """`heard` knows what was said to the turn under an id, if anything was."""
        self._heard = received_steering
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
        """Tokens in the model's view after its last answer."""
        self.doing = ""

    @property
    def question(self) -> QuestionCard | None:
        """The one that waits for an answer."""
        return next((card for card in self._questions.values() if card.open), None)

    def begin(self) -> None:
        self.ended = None
        self.doing = "working"

    async def write(self, event: Event) -> None:
        await self._remove_transient()
        match event:
            case TextDelta(text=text):
                await self._speak(text)
            case ReasoningDelta(text=text):
                await self._think(text)
            case ToolStarted(call=call):
                await self._pause()
                card = ToolCard(call, self.display)
                self._cards[call.id] = (card, self._clock.monotonic())
                self.doing = single_line(call.name)
                await self._transcript.add(card)
            case ToolProgress(call=call, text=text):
                if call in self._cards:
                    self._cards[call][0].add_progress(text)
            case MessageAdded(message=message):
                await self._said(message)
            case QuestionAsked() | QuestionAnswered():
                await self._asked(event)
            case StreamReset() | Notice() | RunStarted() | RunEnded():
                await self._note(event)
            case _:
                assert_never(event)

    async def end(self) -> None:
        """Nothing more comes: what is open is closed."""
        await self._remove_transient()
        await self._pause()
        for card, _ in self._cards.values():
            card.mark_interrupted()
        self._cards.clear()
        for question in self._questions.values():
            if question.open:
                await question.close_question("")
        self._questions.clear()
        self.doing = ""

    async def _speak(self, text: str) -> None:
        self._end_thought()
        if self._answer is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._answer = Answer(raw=self.display.raw)
            self.doing = "answering"
            await self._transcript.add(self._answer)
        await self._answer.add(text)

    async def _think(self, text: str) -> None:
        if self._thinking is None:
            if not text.strip():
                return
            await self._pause()
            self.doing = "thinking"
            if not self.display.reasoning:
                return
            self._thinking = ThinkingCard()
            await self._transcript.add(self._thinking)
            if self.display.open:
                await self._thinking.open()
        self._thinking.add(text)

    def _end_thought(self) -> None:
        if self._thinking is not None:
            self._thinking.end()
            self._thinking = None

    async def _pause(self) -> None:
        """What is said next begins anew."""
        self._end_thought()
        self._answer = None

    async def _said(self, message: Message) -> None:
        if isinstance(message, Assistant):
            await self._check(message)
            await self._pause()
            if message.usage.input:
                self.used = message.usage.input + message.usage.output
        elif isinstance(message, Result) and message.call in self._cards:
            card, began = self._cards.pop(message.call)
            await card.end(message, self._clock.monotonic() - began)
            self.doing = "working"
        elif isinstance(message, User):
            await self._add_user_message(message)

    async def _add_user_message(self, message: User) -> None:
        """What was said to the turn stands where it was heard; what was brought is announced."""
        text = self._heard(message.id)
        if text is not None:
            await self._pause()
            at = self._clock.now() if self.display.times else None
            await self._transcript.add(Words(text, at))
        elif message.trust is Trust.DATA:
            await self._pause()
            await self._transcript.add(Note(f"● {headline(text_of(message), _MAX_HEADLINE)}"))

    async def _check(self, message: Assistant) -> None:
        """Words on the way may get lost, the message does not."""
        shown = self._answer.text.strip() if self._answer is not None else ""
        said = message.text
        if shown == said.strip():
            return
        if self._answer is not None:
            await self._answer.remove()
            self._answer = None
        await self._speak(said)

    async def _asked(self, event: QuestionAsked | QuestionAnswered) -> None:
        if isinstance(event, QuestionAsked):
            await self._ask(event.question)
            return
        self.doing = "working"
        # The time that a person took is no time of the call's.
        waited = self._clock.monotonic() - self._asked_at
        self._cards = {id_: (card, at + waited) for id_, (card, at) in self._cards.items()}
        card = self._questions.pop(event.question, None)
        if card is not None:
            await card.close_question(event.answer, lapsed=True)

    async def _ask(self, question: Question) -> None:
        await self._pause()
        card = QuestionCard(question, self._clock)
        self._questions[question.id] = card
        self._asked_at = self._clock.monotonic()
        self.doing = "waiting for you"
        await self._transcript.add(card)

    async def _note(self, event: StreamReset | Notice | RunStarted | RunEnded) -> None:
        match event:
            case StreamReset(reason=reason):
                if self._answer is not None:
                    await self._answer.remove()
                await self._pause()
                await self._add_note(f"{reason}; the answer starts again.")
            case Notice(text=text, passing=passing):
                note = await self._add_note(text)
                self._transient_note = note if passing else None
            case RunEnded(reason=reason):
                self.ended = event
                await self._pause()
                if reason:
                    await self._add_note(reason)
            case RunStarted():
                self.doing = "thinking"

    async def _add_note(self, text: str) -> Note:
        note = Note(single_line(text), "warning")
        await self._transcript.add(note)
        return note

    async def _remove_transient(self) -> None:
        """What was said for the meantime is over."""
        if self._transient_note is not None:
            await self._transient_note.remove()
            self._transient_note = None
