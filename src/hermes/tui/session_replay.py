"""The end of an earlier talk, put on the screen as it stood there when it was held."""

from datetime import datetime

from textual.widget import Widget

from hermes.kit.terminal_text import headline
from hermes.kit.text import plural
from hermes.schema.attachments import typed_text
from hermes.schema.messages import (
    Assistant,
    Reasoning,
    Result,
    Stop,
    Trust,
    User,
    text_of,
)
from hermes.schema.sessions import StoredMessage
from hermes.tui.client import RecentHistory
from hermes.tui.display_options import DisplayOptions
from hermes.tui.widgets import app_of
from hermes.tui.widgets.cards import ThinkingCard, ToolCard
from hermes.tui.widgets.messages import Answer, Note, UserMessage
from hermes.tui.widgets.transcript import PAST, TURN, Transcript

_MAX_HEADLINE = 200
"""Characters of what was brought that are shown."""


async def replay_session(
    transcript: Transcript, before: RecentHistory, taste: DisplayOptions
) -> None:
    """Cards open as they did, and tell how long their calls took where that is known."""
    memory = _Replay(before, taste)
    if before.more:
        told = f"… {plural(before.more, 'message')} before; /history shows them"
        memory.things.append(Note(told))
    for row in before.rows:
        memory.take(row)
    for thing in memory.things:
        thing.add_class(PAST)
    with app_of(transcript).batch_update():
        await transcript.add(*memory.things)
        await memory.fill()
    transcript.go_to_end()


class _Replay:
    """Things to show in order, and what is to be put in them once they are there."""

    def __init__(self, before: RecentHistory, taste: DisplayOptions) -> None:
        self.things: list[Widget] = []
        self._display_options = taste
        self._cut = before.cut
        self._questions = before.asked
        self._run = ""
        self._answers: list[tuple[Answer, str]] = []
        self._thoughts: list[ThinkingCard] = []
        self._cards: dict[str, tuple[ToolCard, datetime | None]] = {}
        self._ends: list[tuple[ToolCard, Result, float]] = []

    def take(self, row: StoredMessage) -> None:
        message = row.message
        match message:
            case User():
                self._asked(message, row)
            case Assistant():
                self._answered(message, row.at)
            case Result():
                self._done(message, row.at)
        if row.seq in self._cut:
            self.things.append(Note("Interrupted before it was answered.", "warning"))

    async def fill(self) -> None:
        for answer, words in self._answers:
            await answer.add(words)
        for thinking in self._thoughts if self._display_options.open else ():
            await thinking.open()
        for card, result, took in self._ends:
            await card.end(result, took)
        for card, _ in self._cards.values():
            card.mark_interrupted()

    def _asked(self, message: User, row: StoredMessage) -> None:
        words = typed_text(message).strip("\n")
        if message.trust is Trust.DATA:
            thing = Note(f"● {headline(words, _MAX_HEADLINE)}")
        elif message.trust is not Trust.PROGRAM and words:
            thing = UserMessage(words, row.at if self._display_options.times else None)
        else:
            return
        # All that was said to one turn is taken back with it.
        if row.run != self._run:
            thing.add_class(TURN)
        self._run = row.run
        self.things.append(thing)

    def _answered(self, message: Assistant, at: datetime) -> None:
        thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if thoughts.strip() and self._display_options.reasoning:
            thinking = ThinkingCard()
            thinking.add(thoughts)
            thinking.end()
            self.things.append(thinking)
            self._thoughts.append(thinking)
        if words := text_of(message).strip("\n"):
            answer = Answer(raw=self._display_options.raw)
            self.things.append(answer)
            self._answers.append((answer, words))
        calls = message.calls
        for call in calls:
            card = ToolCard(call, self._display_options)
            self.things.append(card)
            # Of calls that were made together nobody wrote down when each of them ended.
            self._cards[call.id] = (card, at if len(calls) == 1 else None)
        if message.stop is Stop.CANCELLED:
            self.things.append(Note("Interrupted.", "warning"))

    def _done(self, message: Result, at: datetime) -> None:
        if (known := self._cards.pop(message.call, None)) is not None:
            card, began = known
            self._ends.append((card, message, self._took(began, at)))

    def _took(self, began: datetime | None, ended: datetime) -> float:
        """Zero where it is not known: how long a person took to answer is not written down."""
        if began is None or any(began <= at <= ended for at in self._questions):
            return 0.0
        return (ended - began).total_seconds()
