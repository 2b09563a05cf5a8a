"""The chat: what was said above, where one types below, and a line that says how things are."""

import asyncio
from importlib import import_module
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Tooltip

from hermes.schema.errors import HermesError
from hermes.schema.questions import ApprovalChoice
from hermes.tui.busy_mode import ENTER_HINTS, PLACEHOLDERS, BusyMode
from hermes.tui.client import MessageParts, ScreenReply, TextReply
from hermes.tui.conversation import ConversationController
from hermes.tui.event_renderer import EventRenderer
from hermes.tui.screens.chat_deps import ChatDeps, ExitRequest
from hermes.tui.screens.display_commands import DisplayCommands
from hermes.tui.screens.greeting import show_greeting, show_history
from hermes.tui.screens.key_timing import KeyDebounce, QuitConfirmation
from hermes.tui.screens.transcript_screen import TranscriptScreen
from hermes.tui.screens.turn import EventPump, TurnDisplay
from hermes.tui.widgets import app_of
from hermes.tui.widgets.messages import Note, UserMessage
from hermes.tui.widgets.prompt import DEFAULT_PLACEHOLDER, SEND_KEYS, PastedTexts, Prompt
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.status import PendingInput, StatusBar, StatusInfo
from hermes.tui.widgets.suggestions import Suggestions
from hermes.tui.widgets.transcript import TURN, Transcript

TICK_SECONDS = 1.0
"""Seconds between two looks at the time, and at whether something came in by itself."""


class Chat(TranscriptScreen):
    CSS = """
    Chat { layout: vertical; background: $background; }
    Chat.compact UserMessage, Chat.compact Answer { margin: 0 1 0 0; }
    Chat.compact Note { margin: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop_or_leave", show=False, priority=True),
        Binding("ctrl+d", "leave", show=False),
        Binding("escape", "back", show=False),
        *(Binding(key, f"send('{manner}')", show=False) for key, manner in SEND_KEYS.items()),
        Binding("ctrl+r", "sessions", show=False, priority=True),
        Binding("f2", "models", show=False, priority=True),
    ]

    def __init__(self, house: ChatDeps) -> None:
        super().__init__()
        self._house = house
        self._greeting = house.client.greeting
        self._now = house.client.state
        self.conversation = ConversationController(
            house.client, house.turn_worker, house.side_worker, self
        )
        self.set_class(house.display.compact, "compact")
        self._scribe = EventRenderer(
            self.transcript, house.clock, self.conversation.steering_received, house.display
        )
        self._event_pump = EventPump(self._scribe, house.clock, self)
        self._status = StatusBar()
        self._waiting = PendingInput()
        self._suggestions = Suggestions()
        pastes = PastedTexts(house.display.paste_lines, house.display.paste_size)
        self.prompt = Prompt(house.history, self._suggestions, self.conversation.pop_last, pastes)
        self._opened = asyncio.Event()
        self._turning = TurnDisplay(house, self._scribe, self._event_pump)
        self._ending = QuitConfirmation(self, house.clock)
        self._hush = KeyDebounce(self.prompt, house.clock)
        self._looks = DisplayCommands(self, self._scribe, self._status, self.return_text)

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._suggestions
        yield self._waiting
        yield self.prompt
        yield self._status

    async def on_mount(self) -> None:
        # A tooltip of a table would read a model's words as markup, with actions in it.
        await self.query(Tooltip).remove()
        self.prompt.focus()
        self.changed()
        self.run_worker(self._event_pump.run())
        self.set_interval(TICK_SECONDS, self._tick)
        # First something to look at and to type in, then all that takes time.
        self.call_after_refresh(self._open)

    @work(group="talk")
    async def _open(self) -> None:
        companion = self._house.client
        try:
            await self._house.turn_worker.run(companion.open)
        except HermesError as error:
            self.post_message(ExitRequest(error.exit_code, error))
            return
        self._greeting, self._now = companion.greeting, companion.state
        self.prompt.set_completion(self._greeting.commands, self._greeting.folder)
        self._scribe.used = await show_greeting(self.transcript, self._house)
        self._opened.set()
        self._prepare()
        await self.conversation.start()

    def _prepare(self) -> None:
        """What is needed for the first answer is loaded while the person thinks."""
        name = "hermes.tui.widgets.code"
        self.run_worker(self._house.side_worker.run(lambda: import_module(name)), group="prepare")

    # What the conversation is shown on.

    async def show_user_message(self, text: str) -> None:
        said = UserMessage(text, self._house.clock.now() if self._scribe.display.times else None)
        said.add_class(TURN)
        await self.transcript.add(said)
        self.transcript.go_to_end()

    async def show_note(self, text: str, kind: str, typed: str = "") -> None:
        note = Note(text, kind, typed)
        await self.transcript.add(note)
        if typed or kind == "reply":
            # Whoever asked for it wants to see it, wherever they were reading.
            self.transcript.go_to(note)

    def mark_undone(self, turns: int) -> None:
        self.transcript.mark_undone(turns)

    async def show_reply(self, reply: TextReply, typed: str) -> None:
        if reply.clear:
            await self.transcript.empty()
        if reply.clip:
            app_of(self).copy_to_clipboard(reply.clip)
        await self.show_note(reply.text, "reply", typed)
        now = self._house.client.state
        if now.session != self._now.session:
            # How full another session is shows with its next answer.
            self._scribe.used = 0
            # One that has begun already is a copy of this one.
            if not now.started:
                self.transcript.begin_session()
        self._look_again()

    async def show_resumed(self, told: str, typed: str) -> None:
        self.transcript.begin_session()
        await self.show_note(told, "reply", typed)
        self._scribe.used = await show_history(self.transcript, self._house, self._scribe.display)
        self._look_again()

    async def adjust(self, action: ScreenReply, typed: str) -> None:
        if told := self._looks.adjust(action, self._house.client):
            await self.show_note(told, "reply", typed)

    def _look_again(self) -> None:
        self._now = self._house.client.state
        self.changed()

    async def run_turn(self, parts: MessageParts) -> None:
        before = len(self.transcript.children)
        try:
            await self._turning.run(parts, self.changed)
        finally:
            self._ending.stopped()
            if not self._turning.closed:
                self._now = self._house.client.state
                # What came in by itself is a turn as well, though nobody said anything.
                for first in self.transcript.children[before : before + (not parts)]:
                    first.add_class(TURN)
                await self.transcript.archive_old()
                self.changed()
        await self._turning.add_cost()
        self.changed()
        if self._house.display.bell:
            app_of(self).bell()

    @property
    def plain(self) -> str:
        """All that was said; what nobody was there to hear is said there, too."""
        unheard = (
            [] if self.conversation.open else [*self.conversation.queued, self.prompt.full_text]
        )
        told = [f"> {one}" for one in unheard if one.strip()]
        return "\n".join(filter(None, [self.transcript.plain_text(), *told]))

    def stop_rendering(self) -> None:
        """Nothing more is written: the screen is about to go."""
        self._turning.closed = True
        self.workers.cancel_all()

    def return_text(self, text: str) -> None:
        rest = f"\n{self.prompt.text}" if self.prompt.text else ""
        self.prompt.fill(text + rest)

    def quit(self) -> None:
        self.post_message(ExitRequest(0))

    def changed(self) -> None:
        """Show how things are."""
        if self._turning.closed or not self.is_attached:
            return
        if not self.conversation.busy:
            self._ending.stopped()
        waiting = self.conversation.queued
        self._waiting.show_lines(self.conversation.steering, waiting)
        self.prompt.set_placeholder(self._placeholder_text())
        self._status.show_info(
            StatusInfo(
                starting=not self._opened.is_set(),
                doing=self._scribe.doing,
                model=self._now.model or self._greeting.model,
                used=self._scribe.used,
                window=self._now.window,
                cost=self._turning.cost,
                seconds=self._turning.seconds,
                sandbox=self._now.sandbox,
                yolo=self._now.yolo,
                background_jobs=self._now.background_jobs,
                enter=self._enter_hint(),
                queued=len(waiting),
                below=not self.transcript.is_at_end,
            )
        )

    def _placeholder_text(self) -> str:
        """What would be done with words that are typed now."""
        if not self.conversation.busy:
            return DEFAULT_PLACEHOLDER
        card = self._scribe.question
        return (
            PLACEHOLDERS[self.conversation.default_mode] if card is None else card.placeholder_text
        )

    def _enter_hint(self) -> str:
        """Said also to whoever has begun to type, and sees no invitation any more."""
        if not self._turning.running or self._scribe.question is not None:
            return ""
        return ENTER_HINTS[self.conversation.default_mode]

    # What came in.

    def asked(self, card: QuestionCard) -> None:
        self.transcript.go_to_end()
        # Keys that are meant for the prompt must not decide anything.
        self.prompt.asked()
        if not self.prompt.text:
            self.call_after_refresh(card.take_focus)

    def lapsed(self, keys: frozenset[str]) -> None:
        self._hush.lapsed(keys)

    def _tick(self) -> None:
        if self._turning.running:
            if (card := self._scribe.question) is not None:
                card.tick()
            self.changed()
        elif not self.conversation.busy and not self.prompt.text and app_of(self).screen is self:
            self.run_worker(self.conversation.check_news(), group="talk")

    # What people do.

    def on_descendant_focus(self) -> None:
        self.changed()

    def on_key(self, event: events.Key) -> None:
        """Whoever types wants to say something, wherever the focus was left."""
        if event.key == "enter" and self.focused is self.prompt:
            # It was on its way to a card when the letters before it went to the prompt.
            event.stop()
            self.prompt.submit()
            return
        known = event.key in self.active_bindings
        if not event.is_printable or known or self.prompt.has_focus or event.character is None:
            return
        event.stop()
        event.prevent_default()
        # At once: the keys that follow may be here already, and Enter would go to a card.
        self.set_focus(self.prompt)
        if not self.prompt.ignores(event.character):
            self.prompt.insert(event.character)

    @on(Prompt.Sent)
    async def _sent(self, event: Prompt.Sent) -> None:
        self._ending.reset()
        text = event.text.strip()
        card = self._scribe.question
        if text in {"/resume", "/sessions"} and not self.conversation.busy:
            self.action_sessions()
        elif text == "/model" and not self.conversation.busy:
            self.action_models()
        elif card is not None and _is_answer(card, event):
            if not card.answer_with(text):
                self.return_text(event.text)
        else:
            self.conversation.add(event.text, event.manner)
            self.run_worker(self.conversation.run_queued(), group="talk")

    @on(Suggestions.Taken)
    def _taken(self, event: Suggestions.Taken) -> None:
        self.prompt.take(event.suggestion)

    @on(QuestionCard.Decided)
    async def _decided(self, event: QuestionCard.Decided) -> None:
        if event.words in set(ApprovalChoice):
            self._hush.decided(event.words)
        self.prompt.focus()
        companion = self._house.client
        try:
            await self._house.side_worker.run(lambda: companion.answer(event.question, event.words))
        except HermesError as error:
            await self.show_note(error.sentence, "error")

    @on(QuestionCard.Left)
    def _question_left(self) -> None:
        self.prompt.focus()

    @on(Transcript.Moved)
    def _moved(self) -> None:
        self.changed()

    def action_send(self, manner: str) -> None:
        """What was typed, and what it does to the turn that is going on."""
        self.prompt.submit(BusyMode(manner))

    @on(Prompt.Left)
    def action_leave(self) -> None:
        """Nothing that was typed is thrown away by it."""
        if not self.prompt.text:
            self.post_message(ExitRequest(0))

    def action_stop_or_leave(self) -> None:
        if self.copy_selected():
            return
        if self._ending.pending:
            self.post_message(ExitRequest(130))
        elif self._turning.running or self.conversation.busy or self.conversation.queued:
            self._ending.stopping(leaving=True)
            self.conversation.interrupt()
        elif self.prompt.text:
            self.prompt.empty()
        else:
            self._ending.warn()

    def action_back(self) -> None:
        """Esc: from a card to the prompt, else it ends what is going on."""
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif self._turning.running:
            self._ending.stopping()
            self.conversation.interrupt()

    @work(group="picking", exclusive=True)
    async def action_sessions(self) -> None:
        from hermes.tui.screens.picker import session_picker  # noqa: PLC0415 - as in `_prepare`

        await self._opened.wait()
        picker = session_picker(self._house, self._now.session)
        if chosen := await app_of(self).push_screen_wait(picker):
            await self._command(f"/resume {chosen}")

    @work(group="picking", exclusive=True)
    async def action_models(self) -> None:
        from hermes.tui.screens.picker import model_picker  # noqa: PLC0415 - as in `_prepare`

        await self._opened.wait()
        picker = model_picker(self._house, self._now.model)
        if chosen := await app_of(self).push_screen_wait(picker):
            await self._command(f"/model {chosen}")

    async def _command(self, line: str) -> None:
        self.conversation.add(line)
        await self.conversation.run_queued()


def _is_answer(card: QuestionCard, sent: Prompt.Sent) -> bool:
    """Commands, and what somebody began to type before they were asked, decide nothing."""
    aside = sent.unasked or sent.text.lstrip().startswith("/")
    return sent.manner is None and (card.accepts_text or not aside)
