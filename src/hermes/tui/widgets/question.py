"""Something that the turn has to ask: all that is needed to decide, and the choices."""

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
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from hermes.kit.clock import Clock
from hermes.kit.terminal_text import (
    escape_controls,
    show_invisible,
    show_invisible_line,
    single_line,
)
from hermes.schema.questions import TERMINAL_ORIGIN, ApprovalChoice, Question, QuestionKind
from hermes.tui.widgets import app_of
from hermes.tui.widgets.status import format_duration

KEY_PAUSE = 0.4
"""Seconds without a key, after which one is meant for the question and not for words begun."""
_MAX_LINE = 300
_MAX_ECHO = 40
_MAX_SECONDS_SHOWN = 120
_NO_COUNTDOWN = 24 * 3600
"""Seconds from which on nobody waits for the end of a question."""
_LABELS = {
    ApprovalChoice.ONCE: "Allow once",
    ApprovalChoice.SESSION: "Allow for this session",
    ApprovalChoice.ALWAYS: "Allow always",
    ApprovalChoice.DENY: "Deny",
}
_RESULT_LABELS = {
    ApprovalChoice.ONCE: "allowed once",
    ApprovalChoice.SESSION: "allowed for this session",
    ApprovalChoice.ALWAYS: "allowed always",
    ApprovalChoice.DENY: "denied",
}


class HangingText(Visual):
    """A mark, and words beside it that go on below themselves where there is no room."""

    def __init__(self, mark: Content, words: Content) -> None:
        self._mark = mark
        self._words = words

    def _room(self, width: int) -> int:
        return max(width - self._mark.cell_length, 1)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        room = self._room(container_width)
        return self._mark.cell_length + self._words.get_optimal_width(rules, room)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._words.get_height(rules, self._room(width))

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        lines = self._words.render_strips(self._room(width), height, style, options)
        (mark, *_) = self._mark.render_strips(self._mark.cell_length, 1, style, options)
        blank = Strip.blank(self._mark.cell_length, style.rich_style)
        return [Strip.join([blank if place else mark, line]) for place, line in enumerate(lines)]


class Choices(OptionList):
    """A letter or a number chooses at once, Enter what is marked; nothing does at first."""

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
        super().__init__(*(Option(one, id=str(place)) for place, one in enumerate(labels)))
        self._clock = clock
        self._since = clock.monotonic()
        # Enter in a hurry must not allow anything.
        self._strict = question.kind is QuestionKind.APPROVAL
        wary = self._strict and ApprovalChoice.DENY in question.choices
        self.highlighted = question.choices.index(ApprovalChoice.DENY) if wary else 0

    class Missed(Message):
        """A key that chooses nothing, where words would be no answer either."""

    def action_cursor_down(self) -> None:
        """No way from the last one to the first: one key too many must not allow anything."""
        if self.highlighted != self.option_count - 1:
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        if self.highlighted != 0:
            super().action_cursor_up()

    def on_key(self, event: events.Key) -> None:
        known = event.character or ""
        calm = self._is_after_pause(event)
        if known not in self._keys and event.key != "enter":
            if self._strict and event.is_printable:
                event.stop()
                event.prevent_default()
                self.post_message(self.Missed())
            return
        if not calm:
            event.stop()
            event.prevent_default()
            return
        if known in self._keys:
            event.stop()
            event.prevent_default()
            self.highlighted = list(self._keys).index(known)
            self.action_select()

    def _is_after_pause(self, event: events.Key) -> bool:
        """Whether nobody typed just before: letters of a word under way decide nothing."""
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
    QuestionCard.settled > .asked { color: $foreground 80%; text-style: none; }
    QuestionCard > .subject { padding: 0 2; color: $accent; }
    QuestionCard > .why { color: $foreground 70%; }
    """

    class Decided(Message):
        def __init__(self, question: str, words: str) -> None:
            super().__init__()
            self.question = question
            self.words = words

    class Left(Message):
        """It had the keyboard, and needs it no more."""

    def __init__(self, question: Question, clock: Clock) -> None:
        super().__init__()
        self.question = question
        self._choices = Choices(question, clock) if question.choices else None
        self._clock = clock
        left = question.time_left(clock.now())
        self._span = round(left)
        self._end = clock.monotonic() + left
        self._left = Static(markup=False, classes="left")
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
    def keys(self) -> frozenset[str]:
        """The letters that decide, while it has the keyboard."""
        return frozenset(_choice_keys(self.question)) if self.has_keyboard else frozenset()

    @property
    def has_keyboard(self) -> bool:
        return self._choices is not None and self._choices.has_focus

    @property
    def accepts_text(self) -> bool:
        """Whether what is typed below answers it, whatever it is."""
        return self.open and self.question.kind is QuestionKind.CLARIFY

    @property
    def placeholder_text(self) -> str:
        """What is told where one types, while it waits."""
        if self.accepts_text:
            return "Enter answers the question above"
        if self.has_keyboard:
            return "The question above has the keyboard; Esc or Tab to type here"
        return "yes or no, then Enter; Shift+Tab goes to the question, Esc stops"

    def answer_with(self, words: str) -> bool:
        """Whether it is decided by words that somebody typed; if not, it is asked again."""
        chosen = words if self.accepts_text else _parse_choice(words, self.question.choices)
        if chosen:
            self.decide(chosen)
        else:
            self._remind(f"{show_invisible_line(words, _MAX_ECHO)!r} decides nothing: ", "")
        return bool(chosen)

    def _remind(self, before: str, after: str) -> None:
        keys = ", ".join(f"{key} {word}" for key, word in _choice_keys(self.question).items())
        self._hint.update(Content(before + keys + after))
        self._hint.display = True

    def compose(self) -> ComposeResult:
        question = self.question
        yield Static(Content(single_line(question.text)), markup=False, classes="asked")
        if question.subject:
            # Never cut: what is allowed is what was seen.
            subject = escape_controls(show_invisible(question.subject)).expandtabs()
            yield Static(Content(subject), markup=False, classes="subject")
        # Whoever sits here knows that they asked.
        origin = "" if question.origin == TERMINAL_ORIGIN else question.origin
        whys = [(question.reason, "why: "), (origin, "asked by ")]
        lines = [f"{name}{show_invisible_line(words, _MAX_LINE)}" for words, name in whys if words]
        if lines:
            yield Static(Content("\n".join(lines)), markup=False, classes="why")
        if self._choices is not None:
            yield self._choices
        if self.accepts_text:
            hint = "or type an answer below" if question.choices else "type your answer below"
            self._hint.update(Content.styled(hint, "dim"))
        self._hint.display = self.accepts_text
        yield self._hint
        yield self._left
        self.tick()

    def tick(self) -> None:
        """Tell how much time is left; what waits for very long is not counted down."""
        left = self._end - self._clock.monotonic()
        self._left.display = self.open and left < _NO_COUNTDOWN
        if self._left.display:
            words = f"{_format_seconds(left)} left, then it is not done"
            if self.question.kind is QuestionKind.CLARIFY:
                words = f"{_format_seconds(left)} left to answer"
            self._left.update(Content.styled(words, "dim"))

    def take_focus(self) -> None:
        if self._choices is not None:
            self._choices.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.open:
            self.decide(self.question.choices[event.option_index])

    @on(Choices.Missed)
    def _missed(self, event: Choices.Missed) -> None:
        event.stop()
        self._remind("", "; Tab to type")

    def decide(self, words: str) -> None:
        self.open = False
        self.post_message(self.Decided(self.question.id, words))

    async def close_question(self, answer: str, *, lapsed: bool = False) -> None:
        """It was answered, here or elsewhere, or its time, or the turn, is over."""
        self.open = False
        self._answer = answer
        if self.has_keyboard:
            self.post_message(self.Left())
        self.add_class("settled")
        with app_of(self).batch_update():
            await self.query("Choices, .hint, .left, .why").remove()
            told = f"→ {self._told(answer)}" if answer else self._unanswered(lapsed=lapsed)
            await self.mount(Static(Content.styled(told, "bold"), markup=False))

    def _told(self, answer: str) -> str:
        known = {choice.value: done for choice, done in _RESULT_LABELS.items()}
        approval = self.question.kind is QuestionKind.APPROVAL
        return known.get(answer, single_line(answer)) if approval else single_line(answer)

    def _unanswered(self, *, lapsed: bool) -> str:
        if not lapsed:
            return "→ not answered"
        told = f"Nobody answered within {_format_seconds(self._span)}"
        return f"{told}: not done" if self.question.kind is QuestionKind.APPROVAL else told


def _parse_choice(words: str, choices: tuple[str, ...]) -> str:
    """Nothing when it is not clearly one of the choices: a word, or the letter of one."""
    from hermes.approvals.messages import choice_of_word  # noqa: PLC0415 - a key answers most questions

    word = words.strip().strip(".!").lower()
    letters = {choice[0]: choice for choice in choices}
    chosen = letters.get(word) or choice_of_word(word)
    return chosen if chosen in choices else ""


def _choice_keys(question: Question) -> dict[str, str]:
    if question.kind is QuestionKind.APPROVAL:
        return {word[0]: word for word in question.choices}
    return {str(place): word for place, word in enumerate(question.choices, 1)}


def _label(question: Question, key: str, word: str) -> HangingText:
    known = {choice.value: label for choice, label in _LABELS.items()}
    label = known.get(word, word) if question.kind is QuestionKind.APPROVAL else word
    return HangingText(
        Content.assemble((f" {key} ", "bold"), " "), Content(f"{single_line(label)} ")
    )


def _format_seconds(time: float) -> str:
    """Short times are counted in seconds, as the settings do."""
    whole = max(ceil(time), 0)
    return f"{whole} s" if whole < _MAX_SECONDS_SHOWN else format_duration(whole)
