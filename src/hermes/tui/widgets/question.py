"""The card of a question or an approval request."""

from math import ceil

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.css.styles import RulesMap
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from hermes.kit.clock import Clock
from hermes.kit.terminal_text import (
    display_width,
    escape_controls,
    fit,
    show_invisible,
    show_invisible_line,
    single_line,
)
from hermes.schema.questions import TERMINAL_ORIGIN, ApprovalChoice, Question, QuestionKind
from hermes.tui.widgets import app_of, consume
from hermes.tui.widgets.status import format_duration

KEY_PAUSE = 0.4
"""A key within this many seconds of the last one is taken as typing, not as an answer."""
_MAX_LINE = 300
_MAX_ECHO = 40
_MAX_SECONDS_SHOWN = 120
_NO_COUNTDOWN = 24 * 3600
"""Deadlines further away than this are not counted down."""
_LABELS: dict[str, tuple[str, str]] = {
    ApprovalChoice.ONCE: ("Allow once", "allowed once"),
    ApprovalChoice.SESSION: ("Allow for this session", "allowed for this session"),
    ApprovalChoice.ALWAYS: ("Allow always", "allowed always"),
    ApprovalChoice.DENY: ("Deny", "denied"),
}
"""Of a choice, and of its result."""


class HangingText(Visual):
    """A mark and a text that wraps in its own column."""

    def __init__(self, mark: Content, text: Content) -> None:
        self._mark = mark
        self._text = text

    def _room(self, width: int) -> int:
        return max(width - self._mark.cell_length, 1)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        room = self._room(container_width)
        return self._mark.cell_length + self._text.get_optimal_width(rules, room)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._text.get_height(rules, self._room(width))

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        lines = self._text.render_strips(self._room(width), height, style, options)
        (mark, *_) = self._mark.render_strips(self._mark.cell_length, 1, style, options)
        blank = Strip.blank(self._mark.cell_length, style.rich_style)
        return [Strip.join([blank if index else mark, line]) for index, line in enumerate(lines)]


class Choices(OptionList):
    """A letter or number chooses immediately, Enter chooses the highlighted option."""

    DEFAULT_CSS = """
    Choices { height: auto; max-height: 8; border: none; padding: 0; background: transparent; }
    Choices:focus { border: none; background: transparent; }
    Choices > .option-list--option-highlighted { text-style: bold; }
    Choices:focus > .option-list--option-highlighted { text-style: bold reverse; }
    Choices:focus:nocolor > .option-list--option-highlighted { text-style: bold underline; }
    """

    def __init__(self, question: Question, clock: Clock) -> None:
        self._keys = _choice_keys(question)
        labels = [_label(question, key, word) for key, word in self._keys.items()]
        super().__init__(*(Option(label, id=str(index)) for index, label in enumerate(labels)))
        self._clock = clock
        self._since = clock.monotonic()
        # An accidental Enter must not approve anything.
        self._strict = question.kind is QuestionKind.APPROVAL
        deny_first = self._strict and ApprovalChoice.DENY in question.choices
        self.highlighted = question.choices.index(ApprovalChoice.DENY) if deny_first else 0

    class InvalidKey(Message):
        """An invalid key where text is not accepted either."""

    def action_cursor_down(self) -> None:
        """Do not wrap around: one key press too many must not approve anything."""
        if self.highlighted != self.option_count - 1:
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        if self.highlighted != 0:
            super().action_cursor_up()

    def on_key(self, event: events.Key) -> None:
        key = event.character or ""
        after_pause = self._is_after_pause(event)
        if key not in self._keys and event.key != "enter":
            if self._strict and event.is_printable:
                consume(event)
                self.post_message(self.InvalidKey())
            return
        if not after_pause:
            consume(event)
        elif key in self._keys:
            consume(event)
            self.highlighted = list(self._keys).index(key)
            self.action_select()

    def _is_after_pause(self, event: events.Key) -> bool:
        """Whether no key came shortly before: letters of a word being typed do not answer."""
        before, now = self._since, self._clock.monotonic()
        if event.is_printable or event.key == "enter":
            self._since = now
        return now - before >= KEY_PAUSE


class QuestionCard(Vertical):
    DEFAULT_CSS = """
    QuestionCard {
        height: auto; margin: 0 0 1 0; padding: 0 1;
        border-left: outer $warning; background: $surface;
    }
    QuestionCard.settled { border-left: outer $panel; }
    QuestionCard > .asked { color: $warning; text-style: bold; }
    QuestionCard > .subject { padding: 0 2; color: $accent; }
    QuestionCard > .why { color: $foreground 70%; }
    """

    class Answered(Message):
        def __init__(self, question: str, answer: str) -> None:
            super().__init__()
            self.question = question
            self.answer = answer

    class FocusReleased(Message):
        """The card had the keyboard focus and no longer needs it."""

    def __init__(self, question: Question, clock: Clock) -> None:
        super().__init__()
        self.question = question
        self._choices = Choices(question, clock) if question.choices else None
        self._clock = clock
        left = question.time_left(clock.now())
        self._span = round(left)
        self._end = clock.monotonic() + left
        self._countdown = Static(markup=False, classes="left")
        self._hint = Static(markup=False, classes="hint")
        self._answer = ""
        self.open = True

    @property
    def plain(self) -> str:
        subject = f": {self.question.subject}" if self.question.subject else ""
        return escape_controls(
            f"? {self.question.text}{show_invisible(subject)} -> {self._answer or 'no answer'}"
        )

    @property
    def summary(self) -> str:
        """Summarize the question for the window title and a notification."""
        title = "approval needed" if self.question.kind is QuestionKind.APPROVAL else "question"
        return f"{title}: {self._what}"

    @property
    def keys(self) -> frozenset[str]:
        """The keys that answer while the card has the focus."""
        return frozenset(_choice_keys(self.question)) if self.has_keyboard else frozenset()

    @property
    def has_keyboard(self) -> bool:
        return self._choices is not None and self._choices.has_focus

    @property
    def accepts_text(self) -> bool:
        """Whether any typed text is an answer."""
        return self.open and self.question.kind is QuestionKind.CLARIFY

    @property
    def placeholder_text(self) -> str:
        """Placeholder of the prompt while the question is open."""
        if self.accepts_text:
            return "Enter answers the question above"
        if self.has_keyboard:
            return "Answer the question above by key; Esc or Tab to type here"
        return "yes or no, then Enter; Shift+Tab goes to the question, Esc stops"

    def answer_with(self, text: str) -> bool:
        """Answer with typed text; return False and remind of the choices if it is not a choice."""
        chosen = text if self.accepts_text else _parse_choice(text, self.question.choices)
        if chosen:
            self.decide(chosen)
        else:
            self._remind(f"{show_invisible_line(text, _MAX_ECHO)!r} is not a choice: ", "")
        return bool(chosen)

    def _remind(self, before: str, after: str) -> None:
        keys = ", ".join(f"{key} {word}" for key, word in _choice_keys(self.question).items())
        self._hint.update(Content(before + keys + after))
        self._hint.display = True

    def compose(self) -> ComposeResult:
        question = self.question
        body = "\n".join(filter(None, map(single_line, question.text.splitlines())))
        yield Static(Content(body), markup=False, classes="asked")
        if question.subject:
            # Never cut: the user must see all of what is approved.
            subject = escape_controls(show_invisible(question.subject)).expandtabs()
            yield Static(Content(subject), markup=False, classes="subject")
        # The origin is obvious in the same terminal.
        origin = "" if question.origin == TERMINAL_ORIGIN else question.origin
        details = [(question.reason, "why: "), (origin, "asked by ")]
        lines = [f"{name}{show_invisible_line(text, _MAX_LINE)}" for text, name in details if text]
        if lines:
            yield Static(Content("\n".join(lines)), markup=False, classes="why")
        if self._choices is not None:
            yield self._choices
        if self.accepts_text:
            hint = "or type an answer below" if question.choices else "type your answer below"
            self._hint.update(Content.styled(hint, "dim"))
        self._hint.display = self.accepts_text
        yield self._hint
        yield self._countdown
        self.update_countdown()

    def update_countdown(self) -> None:
        """Update the countdown."""
        left = self._end - self._clock.monotonic()
        self._countdown.display = self.open and left < _NO_COUNTDOWN
        if self._countdown.display:
            text = f"Auto-denied in {_format_seconds(left)}"
            if self.question.kind is QuestionKind.CLARIFY:
                text = f"{_format_seconds(left)} left to answer"
            self._countdown.update(Content.styled(text, "dim"))

    def take_focus(self) -> None:
        if self._choices is not None:
            self._choices.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.open:
            self.decide(self.question.choices[event.option_index])

    @on(Choices.InvalidKey)
    def _missed(self, event: Choices.InvalidKey) -> None:
        event.stop()
        self._remind("", "; Tab to type")

    def decide(self, text: str) -> None:
        self.open = False
        self.post_message(self.Answered(self.question.id, text))

    async def close_question(self, answer: str, *, expired: bool = False) -> None:
        """The question was answered here or elsewhere, expired, or the turn ended."""
        self.open = False
        self._answer = answer
        if self.has_keyboard:
            self.post_message(self.FocusReleased())
        self.add_class("settled")
        with app_of(self).batch_update():
            await self.query("*").remove()
            await self.mount(ResultLine(self._result_text(answer, expired=expired), self._what))

    @property
    def _what(self) -> str:
        """Return the request on one line."""
        return single_line(show_invisible(self.question.subject or self.question.text))

    def _result_text(self, answer: str, *, expired: bool) -> str:
        approval = self.question.kind is QuestionKind.APPROVAL
        if answer:
            labelled = approval and answer in _LABELS
            return f"→ {_LABELS[answer][1] if labelled else single_line(answer)}"
        if not expired:
            return "→ not answered"
        return f"No answer within {_format_seconds(self._span)}" + (": denied" if approval else "")


class ResultLine(Widget):
    """The result of a question and what it was about, on one line."""

    DEFAULT_CSS = "ResultLine { height: 1; width: 1fr; }"

    def __init__(self, result: str, subject: str) -> None:
        super().__init__()
        self._result = result
        self._what = subject

    def render(self) -> Content:
        room = self.size.width - display_width(self._result) - 2
        return Content.assemble(
            (self._result, "bold"), (f"  {fit(self._what, max(room, 0))}", "dim")
        )


def _parse_choice(text: str, choices: tuple[str, ...]) -> str:
    """The choice named by a word or its letter, or an empty string."""
    from hermes.approvals.messages import choice_of_word  # noqa: PLC0415 - most questions are answered by a key

    word = text.strip().strip(".!").lower()
    letters = {choice[0]: choice for choice in choices}
    chosen = letters.get(word) or choice_of_word(word)
    return chosen if chosen in choices else ""


def _choice_keys(question: Question) -> dict[str, str]:
    if question.kind is QuestionKind.APPROVAL:
        return {word[0]: word for word in question.choices}
    return {str(index): word for index, word in enumerate(question.choices, 1)}


def _label(question: Question, key: str, word: str) -> HangingText:
    approval = question.kind is QuestionKind.APPROVAL and word in _LABELS
    label = _LABELS[word][0] if approval else word
    return HangingText(
        Content.assemble((f" {key} ", "bold"), " "), Content(f"{single_line(label)} ")
    )


def _format_seconds(time: float) -> str:
    """Seconds for short times, minutes for longer ones."""
    whole = max(ceil(time), 0)
    return f"{whole} s" if whole < _MAX_SECONDS_SHOWN else format_duration(whole)
