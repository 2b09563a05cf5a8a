"""The chat screen: transcript, prompt and status bar."""

import asyncio
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Raw, structs
from textual import events, on, work
from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.widgets import Tooltip

from hermes.kit.ids import new_id
from hermes.schema.errors import HermesError
from hermes.schema.messages import ToolCall
from hermes.schema.questions import ApprovalChoice
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import ScreenAction, ScreenReply, TextReply
from hermes.tui.chat_deps import ChatDeps, ExitRequest, ThemeRequest
from hermes.tui.client import MessageParts
from hermes.tui.conversation import ConversationController
from hermes.tui.images import ImageChips
from hermes.tui.keys import KeyDebounce, QuitConfirmation
from hermes.tui.options import BusyMode, DisplayOptions, parse_toggle
from hermes.tui.session_start import show_greeting, show_history
from hermes.tui.status_view import StatusView
from hermes.tui.transcript_screen import TranscriptScreen
from hermes.tui.turn_display import EventPump, EventRenderer, TurnDisplay
from hermes.tui.widgets import app_of, consume
from hermes.tui.widgets.cards import ToolCard, shell_result
from hermes.tui.widgets.prompt import (
    SEND_KEYS,
    PastedTexts,
    Prompt,
    Suggestions,
)
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.status import PendingInput, StatusBar
from hermes.tui.widgets.todo import TodoPanel
from hermes.tui.widgets.transcript import TURN, Note, Transcript, UserMessage

TICK_SECONDS = 1.0
"""Seconds between updates of the clock and checks for incoming reports."""


class Chat(TranscriptScreen):
    CSS = """
    Chat { layout: vertical; background: $background; }
    Chat.compact UserMessage, Chat.compact Answer { margin: 0 1 0 0; }
    Chat.compact Note { margin: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop_or_quit", show=False, priority=True),
        Binding("ctrl+d", "quit_if_empty", show=False),
        Binding("escape", "back", show=False),
        *(Binding(key, f"send('{mode}')", show=False) for key, mode in SEND_KEYS.items()),
        Binding("ctrl+r", "search_history", show=False, priority=True),
        Binding("f3", "sessions", show=False, priority=True),
        Binding("f2", "models", show=False, priority=True),
    ]

    def __init__(self, deps: ChatDeps) -> None:
        super().__init__()
        self._deps = deps
        self._greeting = deps.client.greeting
        self._state = deps.client.state
        images = ImageChips()
        self.conversation = ConversationController(
            deps.client, deps.turn_worker, deps.side_worker, self, images
        )
        self.set_class(deps.display.compact, "compact")
        self._todo = TodoPanel()
        self._renderer = EventRenderer(
            self.transcript,
            deps.clock,
            self.conversation.steering_received,
            deps.display,
            self._todo,
        )
        self._event_pump = EventPump(self._renderer, deps.clock, self)
        self._status = StatusBar()
        self._pending = PendingInput()
        self._suggestions = Suggestions()
        pastes = PastedTexts(deps.display.paste_lines, deps.display.paste_size)
        self.prompt = Prompt(
            deps.history, self._suggestions, self.conversation.pop_last, pastes, images
        )
        self._opened = asyncio.Event()
        self._turn = TurnDisplay(deps, self._renderer, self._event_pump)
        self._status_view = StatusView(
            bar=self._status,
            pending=self._pending,
            prompt=self.prompt,
            conversation=self.conversation,
            renderer=self._renderer,
            turn=self._turn,
            transcript=self.transcript,
        )
        self._quit = QuitConfirmation(self, deps.clock)
        self._debounce = KeyDebounce(self.prompt, deps.clock)

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._suggestions
        yield self._todo
        yield self._pending
        yield self.prompt
        yield self._status

    async def on_mount(self) -> None:
        # Tooltips of tables would interpret model output as markup with actions.
        await self.query(Tooltip).remove()
        self.prompt.focus()
        self.refresh_status()
        self.run_worker(self._event_pump.run())
        self.set_interval(TICK_SECONDS, self._tick)
        # Show the screen first, then do what takes time.
        self.call_after_refresh(self._open)

    @work(group="talk")
    async def _open(self) -> None:
        client = self._deps.client
        try:
            await self._deps.turn_worker.run(client.open)
        except HermesError as error:
            self.post_message(ExitRequest(error.exit_code, error))
            return
        self._greeting, self._state = client.greeting, client.state
        self.prompt.set_completion(self._greeting.commands, self._greeting.folder)
        shown = await show_greeting(self.transcript, self._deps)
        self._renderer.used_tokens = shown.tokens
        self._todo.show_list(shown.todo)
        self._opened.set()
        # Load the Markdown widgets while the user types.
        load = partial(import_module, "hermes.tui.widgets.code")
        self.run_worker(self._deps.side_worker.run(load), group="prepare")
        await self.conversation.start()

    # ConversationView

    async def show_user_message(self, text: str) -> None:
        at = self._deps.clock.now() if self._renderer.display.times else None
        message = UserMessage(text, at)
        message.add_class(TURN)
        await self.transcript.add(message)
        self.transcript.go_to_end()

    async def show_note(self, text: str, kind: str, typed: str = "") -> None:
        note = Note(text, kind, typed)
        await self.transcript.add(note)
        if typed or kind == "reply":
            # The user requested it, so scroll to it.
            self.transcript.go_to(note)

    def mark_undone(self, turns: int) -> None:
        self.transcript.mark_undone(turns)

    async def show_reply(self, reply: TextReply, typed: str) -> None:
        if reply.clear:
            await self.transcript.empty()
        if reply.clipboard:
            app_of(self).copy_to_clipboard(reply.clipboard)
        note = Note(reply.text, "reply", typed, is_diff=reply.is_diff)
        await self.transcript.add(note)
        self.transcript.go_to(note)
        now = self._deps.client.state
        if now.session != self._state.session:
            # Usage of another session is unknown until its next answer.
            self._renderer.used_tokens = 0
            # A session that has already started is a branch of this one.
            if not now.started:
                self.transcript.begin_session()
                self._todo.show_list("")
        self._refresh_state()

    async def show_resumed(self, resumed: str, typed: str) -> None:
        self.transcript.begin_session()
        await self.show_note(resumed, "reply", typed)
        shown = await show_history(self.transcript, self._deps, self._renderer.display)
        self._renderer.used_tokens = shown.tokens
        self._todo.show_list(shown.todo)
        self._refresh_state()

    async def adjust(self, action: ScreenReply, typed: str) -> None:
        text = ""
        match action.action:
            case ScreenAction.TIMESTAMPS:
                options = self._renderer.display
                on = parse_toggle(action.argument, current=options.times)
                self._renderer.display = structs.replace(options, times=on)
                text = f"Timestamps are now {'shown' if on else 'hidden'}."
            case ScreenAction.STATUSBAR:
                on = parse_toggle(action.argument, current=bool(self._status.display))
                self._status.display = on
                text = "" if on else "Status bar hidden; /statusbar shows it again."
            case ScreenAction.COMPOSE:
                text = self._compose_in_editor(action.argument)
            case ScreenAction.THEME:
                self.post_message(ThemeRequest(action.argument))
            case ScreenAction.PASTE:
                self.prompt.post_message(Prompt.ImageRequested())
            case ScreenAction.OUTPUT:
                found = self.show_long_output(int(action.argument or "1"))
                text = "" if found else "There is no such long output."
            case ScreenAction.REDRAW:
                app_of(self).refresh(repaint=True, layout=True)
        if text:
            await self.show_note(text, "reply", typed)

    def _compose_in_editor(self, draft: str) -> str:
        """Return why it failed, or an empty string."""
        try:
            with app_of(self).suspend():
                text = self._deps.client.compose_text(draft)
        except SuspendNotSupported:
            return "This terminal does not support that."
        self.return_text(text.rstrip())
        return ""

    def _refresh_state(self) -> None:
        self._state = self._deps.client.state
        self.refresh_status()

    async def run_shell(self, command: str) -> ShellResult:
        self._renderer.activity = "shell"
        self.refresh_status()
        try:
            return await run_shell(command, self.transcript, self._deps, self._renderer.display)
        finally:
            self._renderer.activity = ""

    async def run_turn(self, parts: MessageParts, images: Sequence[str]) -> None:
        before = len(self.transcript.children)
        try:
            await self._turn.run(parts, images, self.refresh_status)
        finally:
            self._quit.stopped()
            if not self._turn.closed:
                self._state = self._deps.client.state
                # A report starts a turn without a user message.
                for first in self.transcript.children[before : before + (not parts)]:
                    first.add_class(TURN)
                await self.transcript.archive_old()
                self.refresh_status()
        await self._turn.add_cost()
        self.refresh_status()
        if self._deps.display.bell:
            app_of(self).bell()

    @property
    def plain(self) -> str:
        """The transcript as text, with unsent lines if the client never opened."""
        unsent = (
            [] if self.conversation.open else [*self.conversation.queued, self.prompt.full_text]
        )
        lines = [f"> {one}" for one in unsent if one.strip()]
        return "\n".join(filter(None, [self.transcript.plain_text(), *lines]))

    def stop_rendering(self) -> None:
        """Stop rendering: the screen is closing."""
        self._turn.closed = True
        self._deps.attention.end()
        self.workers.cancel_all()

    def return_text(self, text: str) -> None:
        rest = f"\n{self.prompt.text}" if self.prompt.text else ""
        self.prompt.fill(text + rest)

    def quit(self) -> None:
        if self._quit.confirmed(self._deps.client.unfinished_jobs):
            self.post_message(ExitRequest(0))

    def refresh_status(self) -> None:
        """Update the status bar, the pending input and the placeholder."""
        if self._turn.closed or not self.is_attached:
            return
        if not self.conversation.busy:
            self._quit.stopped()
        if self._renderer.question is None:
            self._deps.attention.end()
        self._todo.set_compact(compact=not self._turn.running)
        self._status_view.refresh(self._state, self._greeting, starting=not self._opened.is_set())

    # PumpObserver

    def question_asked(self, card: QuestionCard) -> None:
        self.transcript.go_to_end()
        self._deps.attention.call(card.summary)
        # Keys meant for the prompt must not answer the question.
        self.prompt.question_asked()
        if not self.prompt.text:
            self.call_after_refresh(card.take_focus)

    def question_expired(self, keys: frozenset[str]) -> None:
        self._debounce.ignore_answers(keys)

    def _tick(self) -> None:
        if self._turn.running:
            if (card := self._renderer.question) is not None:
                card.update_countdown()
                self._deps.attention.check()
            self.refresh_status()
        elif not self.conversation.busy and not self.prompt.text and app_of(self).screen is self:
            self.run_worker(self.conversation.check_news(), group="talk")

    # User input

    def on_descendant_focus(self) -> None:
        self.refresh_status()

    def on_key(self, event: events.Key) -> None:
        """Send typed characters to the prompt, wherever the focus is."""
        if event.key == "enter" and self.focused is self.prompt:
            # The key was sent to a card before the focus moved to the prompt.
            event.stop()
            self.prompt.submit()
            return
        known = event.key in self.active_bindings
        if not event.is_printable or known or self.prompt.has_focus or event.character is None:
            return
        consume(event)
        # Immediately: the next keys may already be queued, and Enter would go to a card.
        self.set_focus(self.prompt)
        if not self.prompt.ignores(event.character):
            self.prompt.insert(event.character)

    @on(Prompt.Submitted)
    async def _prompt_submitted(self, event: Prompt.Submitted) -> None:
        self._quit.reset()
        text = event.text.strip()
        card = self._renderer.question
        if text in {"/resume", "/sessions"} and not self.conversation.busy:
            self.action_sessions()
        elif text == "/model" and not self.conversation.busy:
            self.action_models()
        elif card is not None and _is_answer(card, event):
            if not card.answer_with(text):
                self.return_text(event.text)
        else:
            self.conversation.add(event.text, event.mode)
            self.run_worker(self.conversation.run_queued(), group="talk")

    @on(Suggestions.Chosen)
    def _suggestion_chosen(self, event: Suggestions.Chosen) -> None:
        self.prompt.insert_suggestion(event.suggestion)

    @on(QuestionCard.Answered)
    async def _question_answered(self, event: QuestionCard.Answered) -> None:
        if event.answer in set(ApprovalChoice):
            self._debounce.ignore_rest(event.answer)
        self.prompt.focus()
        client = self._deps.client
        try:
            await self._deps.side_worker.run(lambda: client.answer(event.question, event.answer))
        except HermesError as error:
            await self.show_note(error.sentence, "error")

    @on(QuestionCard.FocusReleased)
    def _focus_released(self) -> None:
        self.prompt.focus()

    @on(Transcript.Scrolled)
    def _transcript_scrolled(self) -> None:
        self.refresh_status()

    def action_send(self, mode: str) -> None:
        """Submit the prompt with this mode."""
        self.prompt.submit(BusyMode(mode))

    @on(Prompt.QuitRequested)
    def action_quit_if_empty(self) -> None:
        if not self.prompt.text:
            self.quit()

    def action_stop_or_quit(self) -> None:
        if self.copy_selected():
            return
        jobs = self._deps.client.unfinished_jobs
        if self._quit.pending:
            if self._quit.confirmed(jobs, "Ctrl+C"):
                self.post_message(ExitRequest(130))
        elif self._turn.running or self.conversation.busy or self.conversation.queued:
            self._quit.stopping(leaving=True)
            self.conversation.interrupt()
        elif self.prompt.text:
            self.prompt.empty()
        else:
            self._quit.warn(jobs)

    def action_back(self) -> None:
        """Go from a card to the prompt, or stop the turn."""
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif self.conversation.busy:
            self._quit.stopping()
            self.conversation.interrupt()

    @work(group="picking", exclusive=True)
    async def action_sessions(self) -> None:
        from hermes.tui.picker import session_picker  # noqa: PLC0415 - loaded on demand

        await self._opened.wait()
        picker = session_picker(self._deps, self._state.session)
        if chosen := await app_of(self).push_screen_wait(picker):
            await self._command(f"/resume {chosen}")

    @work(group="picking", exclusive=True)
    async def action_search_history(self) -> None:
        from hermes.tui.picker import history_picker  # noqa: PLC0415 - loaded on demand

        picker = history_picker(self._deps.history, self.prompt.text)
        if chosen := await app_of(self).push_screen_wait(picker):
            self.prompt.fill(chosen)
        self.prompt.focus()

    @on(Prompt.ImageRequested)
    @work(group="picking", exclusive=True)
    async def _image_requested(self) -> None:
        try:
            path = await self._deps.side_worker.run(self._deps.client.clipboard_image)
        except HermesError as error:
            self.notify(error.sentence, timeout=5, severity="warning", markup=False)
        else:
            self.prompt.add_image(Path(path))

    @work(group="picking", exclusive=True)
    async def action_models(self) -> None:
        from hermes.tui.picker import model_picker  # noqa: PLC0415 - loaded on demand

        await self._opened.wait()
        picker = model_picker(self._deps, self._state.model)
        if chosen := await app_of(self).push_screen_wait(picker):
            await self._command(f"/model {chosen}")

    async def _command(self, line: str) -> None:
        self.conversation.add(line)
        await self.conversation.run_queued()


def _is_answer(card: QuestionCard, sent: Prompt.Submitted) -> bool:
    """Commands, and text begun before the question, are not answers to an approval."""
    unrelated = sent.predates_question or sent.text.lstrip().startswith("/")
    return sent.mode is None and (card.accepts_text or not unrelated)


async def run_shell(
    command: str, transcript: Transcript, deps: ChatDeps, options: DisplayOptions
) -> ShellResult:
    """Raises `HermesError` if it cannot be started."""
    loop, client, began = asyncio.get_running_loop(), deps.client, deps.clock.monotonic()
    call = ToolCall(new_id("call"), "!", Raw(msgspec.json.encode({"command": command})))
    card = ToolCard(call, options)
    await transcript.add(card)
    transcript.go_to_end()

    def show(text: str) -> None:
        loop.call_soon_threadsafe(card.add_progress, text)

    try:
        done = await deps.turn_worker.run(lambda: client.run_shell(command, show))
    finally:
        card.mark_interrupted()
    await card.end(shell_result(call, done), deps.clock.monotonic() - began)
    if done.output.strip():
        await card.open()
    return done
