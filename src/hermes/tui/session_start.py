"""Show the greeting, and the end of a resumed session as it looked when it ran."""

from datetime import datetime

from msgspec import Struct
from textual.widget import Widget

from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.schema.errors import HermesError
from hermes.schema.messages import (
    Assistant,
    Reasoning,
    Result,
    Stop,
    Trust,
    User,
    text_of,
    typed_text,
)
from hermes.schema.sessions import StoredMessage
from hermes.schema.terminal import RecentHistory
from hermes.tui.chat_deps import ChatDeps
from hermes.tui.options import DisplayOptions
from hermes.tui.todo_list import last_todo_list
from hermes.tui.widgets import app_of
from hermes.tui.widgets.cards import ThinkingCard, ToolCard
from hermes.tui.widgets.transcript import (
    PAST,
    TURN,
    Answer,
    Note,
    Transcript,
    UserMessage,
    report_note,
)


class ShownHistory(Struct, frozen=True):
    """Facts of a resumed session for the rest of the screen."""

    tokens: int = 0  # in the context window after its last answer
    todo: str = ""  # its todo list


async def show_greeting(transcript: Transcript, deps: ChatDeps) -> ShownHistory:
    greeting = deps.client.greeting
    await transcript.add(Note(f"hermes · {greeting.model} · {single_line(greeting.folder)}"))
    shown = ShownHistory()
    if deps.client.state.started:
        shown = await show_history(transcript, deps, deps.display)
    notes = [Note(note) for note in greeting.notes]
    notes += [Note(f"warning: {single_line(warning)}", "warning") for warning in greeting.warnings]
    if (problem := greeting.trouble) is not None:
        text = f"{single_line(problem.message)}\n{problem.hint}".rstrip()
        notes.append(Note(text, "warning alone"))
    await transcript.add(*notes)
    return shown


async def show_history(
    transcript: Transcript, deps: ChatDeps, options: DisplayOptions
) -> ShownHistory:
    """Show the resumed session."""
    try:
        history = await deps.turn_worker.run(deps.client.recent_history)
    except HermesError as error:
        await transcript.add(Note(error.sentence, "warning"))
        return ShownHistory()
    await _replay_session(transcript, history, options)
    usages = [row.message.usage for row in history.rows if isinstance(row.message, Assistant)]
    tokens = next((usage.input + usage.output for usage in reversed(usages) if usage.input), 0)
    return ShownHistory(tokens, last_todo_list(history))


async def _replay_session(
    transcript: Transcript, history: RecentHistory, options: DisplayOptions
) -> None:
    replay = _Replay(history, options)
    if history.more:
        note = f"… {plural(history.more, 'earlier message')}; /history shows them"
        replay.widgets.append(Note(note))
    for row in history.rows:
        replay.add(row)
    for widget in replay.widgets:
        widget.add_class(PAST)
    with app_of(transcript).batch_update():
        await transcript.add(*replay.widgets)
        await replay.fill()
    transcript.go_to_end()


class _Replay:
    """Widgets to show in order, and the content to fill in once they are mounted."""

    def __init__(self, history: RecentHistory, options: DisplayOptions) -> None:
        self.widgets: list[Widget] = []
        self._options = options
        self._interrupted = history.cut
        self._failed = history.failed
        self._questions = history.questions_at
        self._run = ""
        self._answers: list[tuple[Answer, str]] = []
        self._thoughts: list[ThinkingCard] = []
        self._cards: dict[str, tuple[ToolCard, datetime | None]] = {}
        self._results: list[tuple[ToolCard, Result, float]] = []

    def add(self, row: StoredMessage) -> None:
        match row.message:
            case User() as message:
                self._add_user(message, row)
            case Assistant() as message:
                self._add_answer(message, row.at)
            case Result() as message:
                self._add_result(message, row.at)
        if row.seq in self._interrupted:
            self.widgets.append(Note("Interrupted before the answer.", "warning"))
        if (reason := self._failed.get(row.seq)) is not None:
            text = f"Not answered: {reason}" if reason else "Not answered."
            self.widgets.append(Note(text, "error"))

    async def fill(self) -> None:
        for answer, text in self._answers:
            await answer.add(text)
        for thinking in self._thoughts if self._options.reasoning_open else ():
            await thinking.open()
        for card, result, took in self._results:
            await card.end(result, took)
        for card, _ in self._cards.values():
            card.mark_interrupted()

    def _add_user(self, message: User, row: StoredMessage) -> None:
        text = typed_text(message).strip("\n")
        if message.trust is Trust.DATA:
            widget = report_note(text)
        elif message.trust is not Trust.PROGRAM and text:
            widget = UserMessage(text, row.at if self._options.times else None)
        else:
            return
        # All messages of one turn are undone together.
        if row.run != self._run:
            widget.add_class(TURN)
        self._run = row.run
        self.widgets.append(widget)

    def _add_answer(self, message: Assistant, at: datetime) -> None:
        thoughts = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
        if thoughts.strip() and self._options.reasoning:
            thinking = ThinkingCard()
            thinking.add(thoughts)
            thinking.end()
            self.widgets.append(thinking)
            self._thoughts.append(thinking)
        if text := text_of(message).strip("\n"):
            answer = Answer(raw=self._options.raw)
            self.widgets.append(answer)
            self._answers.append((answer, text))
        calls = message.calls
        for call in calls:
            card = ToolCard(call, self._options)
            self.widgets.append(card)
            # For parallel calls the end of each is not recorded.
            self._cards[call.id] = (card, at if len(calls) == 1 else None)
        if message.stop is Stop.CANCELLED:
            self.widgets.append(Note("Interrupted.", "warning"))

    def _add_result(self, message: Result, at: datetime) -> None:
        if (entry := self._cards.pop(message.call, None)) is not None:
            card, began = entry
            self._results.append((card, message, self._duration(began, at)))

    def _duration(self, began: datetime | None, ended: datetime) -> float:
        """Zero if unknown, as when the user was asked meanwhile."""
        if began is None or any(began <= at <= ended for at in self._questions):
            return 0.0
        return (ended - began).total_seconds()
