"""The chat: what was said above, where one types below, and a line that says how things are."""

import asyncio
from importlib import import_module
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, Tooltip

from hermes.kit.plain import fit, flat
from hermes.schema.errors import HermesError
from hermes.schema.events import Answered
from hermes.tui.companion import Parts, Shown
from hermes.tui.meanwhile import INVITES, Manner
from hermes.tui.post import Post
from hermes.tui.screens.house import Going, House
from hermes.tui.scribe import Scribe
from hermes.tui.stand import app_of
from hermes.tui.talk import Talk
from hermes.tui.widgets.copied import Copied
from hermes.tui.widgets.fold import Fold
from hermes.tui.widgets.prompt import ASK, SENDING, Prompt
from hermes.tui.widgets.question import QuestionCard
from hermes.tui.widgets.status import Facts, Status
from hermes.tui.widgets.suggest import Suggestions
from hermes.tui.widgets.transcript import Transcript
from hermes.tui.widgets.words import Note, Recap, Said

FRAME = 0.05
"""Seconds between two looks at what a turn tells; words that come faster are drawn together."""
HUSH = 1.0
"""Seconds for which a key that a question had is not taken for a word, once its time is over."""
SHARE = 3.0
"""How many times as long as a look took is waited before the next: keys come first."""
EVERY = 1.0
"""Seconds between two looks at the time, and at whether something came in by itself."""


class Chat(Screen[None]):
    CSS = """
    Chat { layout: vertical; background: $background; }
    Chat > #queue { height: auto; max-height: 3; padding: 0 1; color: $warning; display: none; }
    Chat > #queue.shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop_or_leave", show=False, priority=True),
        Binding("escape", "back", show=False),
        *(Binding(key, f"send('{manner}')", show=False) for key, manner in SENDING.items()),
        Binding("ctrl+o", "toggle_last", show=False, priority=True),
        Binding("ctrl+y", "copy_code", show=False, priority=True),
        Binding("ctrl+r", "sessions", show=False, priority=True),
        Binding("f2", "models", show=False, priority=True),
        Binding("f1", "keys", show=False, priority=True),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+end", "end", show=False, priority=True),
    ]

    def __init__(self, house: House) -> None:
        super().__init__()
        self._house = house
        self._hello = house.companion.hello
        self._now = house.companion.now
        self.talk = Talk(house.companion, house.errands, house.aside, self)
        self.transcript = Transcript()
        self._scribe = Scribe(self.transcript, house.clock, self.talk.heard)
        self._status = Status()
        self._suggestions = Suggestions()
        self.prompt = Prompt(house.history, self._suggestions, self.talk.take_back)
        self._opened = asyncio.Event()
        self._came = asyncio.Event()
        self._writing = asyncio.Lock()
        self._post = Post(self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began: float | None = None
        self._cost: float | None = None
        self._leaving = False
        self._stopping = False
        self._over = False

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._suggestions
        yield Static(id="queue", markup=False)
        yield self.prompt
        yield self._status

    async def on_mount(self) -> None:
        self._loop = asyncio.get_running_loop()
        # A tooltip of a table would read a model's words as markup, with actions in it.
        await self.query(Tooltip).remove()
        self.prompt.focus()
        self.changed()
        self._watch()
        self.set_interval(EVERY, self._tick)
        # First something to look at and to type in, then all that takes time.
        self.call_after_refresh(self._open)

    @work(group="talk")
    async def _open(self) -> None:
        companion = self._house.companion
        try:
            await self._house.errands.do(companion.open)
        except HermesError as error:
            self.leave(error)
            return
        self._hello, self._now = companion.hello, companion.now
        self.prompt.surround(self._hello.commands, self._hello.folder)
        await self._greet()
        self._opened.set()
        self._prepare()
        await self.talk.begin()

    def _prepare(self) -> None:
        """What is needed for the first answer is loaded while the person thinks."""
        name = "hermes.tui.widgets.code"
        self.run_worker(self._house.aside.do(lambda: import_module(name)), group="prepare")

    async def _greet(self) -> None:
        hello = self._hello
        await self.transcript.add(Note(f"hermes · {hello.model} · {flat(hello.folder)}"))
        if hello.recap:
            await self.transcript.add(Recap(hello.recap))
        for note in hello.notes:
            await self.show_note(note, "")
        for warning in hello.warnings:
            await self.show_note(f"warning: {flat(warning)}", "warning")
        if hello.trouble:
            await self.show_note(f"{hello.trouble}\n{hello.hint}".rstrip(), "warning")

    # What the conversation is shown on.

    async def show_said(self, text: str) -> None:
        await self.transcript.add(Said(text))
        self.transcript.go_to_end()

    async def show_note(self, text: str, kind: str) -> None:
        await self.transcript.add(Note(text, kind))

    async def show_reply(self, reply: Shown) -> None:
        if reply.clear:
            await self.transcript.empty()
        if reply.clip:
            app_of(self).copy_to_clipboard(reply.clip)
        await self.show_note(reply.text, "reply")
        now = self._house.companion.now
        if now.session != self._now.session:
            # How full another session is shows with its next answer.
            self._scribe.used = 0
        self._now = now
        self.changed()

    async def run_turn(self, parts: Parts) -> None:
        companion = self._house.companion
        self._scribe.begin()
        self._began = self._house.clock.monotonic()
        self.changed()
        try:
            await self._house.errands.do(lambda: companion.say(parts, self._post.put))
        finally:
            self._began = None
            self._has_stopped()
            if not self._over:
                await self._write()
                await self._scribe.end()
                self._now = companion.now
                await self.transcript.tidy()
                self.changed()
        if (ended := self._scribe.ended) is not None:
            spent = await self._house.errands.do(lambda: companion.cost(ended))
            if spent is not None:
                self._cost = (self._cost or 0.0) + spent
            self.changed()

    @property
    def plain(self) -> str:
        """All that was said; what nobody was there to hear is said there, too."""
        unheard = [] if self.talk.open else [*self.talk.queued, self.prompt.whole]
        told = [f"> {one}" for one in unheard if one.strip()]
        return "\n".join(filter(None, [self.transcript.plain(), *told]))

    def part(self) -> None:
        """Nothing more is written: the screen is about to go."""
        self._over = True
        self.workers.cancel_all()

    def give_back(self, text: str) -> None:
        rest = f"\n{self.prompt.text}" if self.prompt.text else ""
        self.prompt.fill(text + rest)

    def leave(self, trouble: HermesError | None) -> None:
        self.post_message(Going(trouble.exit_code if trouble else 0, trouble))

    def changed(self) -> None:
        """Show how things are."""
        if self._over or not self.is_attached:
            return
        if not self.talk.busy:
            self._has_stopped()
        waiting = self.talk.queued
        marked = [f"↳ {flat(one)}" for one in self.talk.steering]
        marked += [f"… {flat(one)}" for one in waiting]
        queue = self.query_one("#queue", Static)
        queue.set_class(bool(marked), "shown")
        if marked:
            room = max(self.size.width - 4, 8)
            queue.update(Content("\n".join(fit(one, room) for one in marked[-3:])))
        self.prompt.placeholder = self._invitation()
        clock, began = self._house.clock, self._began
        self._status.tell(
            Facts(
                starting=not self._opened.is_set(),
                doing=self._scribe.doing,
                model=self._now.model or self._hello.model,
                used=self._scribe.used,
                window=self._now.window,
                cost=self._cost,
                seconds=None if began is None else clock.monotonic() - began,
                wall=self._now.wall,
                queued=len(waiting),
                below=not self.transcript.is_at_end,
            )
        )

    def _invitation(self) -> str:
        """What would be done with words that are typed now."""
        if not self.talk.busy:
            return ASK
        card = self._scribe.question
        if card is not None and card.takes_words:
            return "Enter answers the question above"
        return INVITES[self.talk.usual]

    # Events on their way.

    def _wake(self) -> None:
        """Called by the thread of the turn."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._came.set)

    @work
    async def _watch(self) -> None:
        clock = self._house.clock
        while True:
            await self._came.wait()
            began = clock.monotonic()
            await self._write()
            took = clock.monotonic() - began
            await asyncio.sleep(max(FRAME, SHARE * took))

    async def _write(self) -> None:
        async with self._writing:
            self._came.clear()
            for event in self._post.take():
                before = self._scribe.question
                if isinstance(event, Answered) and not event.answer and before is not None:
                    self._hush(before.keys)
                await self._scribe.write(event)
                card = self._scribe.question
                if card is not None and card is not before:
                    self._put_question(card)
        self.changed()

    def _put_question(self, card: QuestionCard) -> None:
        self.transcript.go_to_end()
        # Keys that are meant for the prompt must not decide anything.
        if not self.prompt.text:
            self.call_after_refresh(card.take_focus)

    def _hush(self, keys: frozenset[str]) -> None:
        """Whoever decides a moment too late has said nothing."""
        clock = self._house.clock
        until = clock.monotonic() + HUSH
        self.prompt.ignore(lambda key: key in keys and clock.monotonic() < until)

    def _tick(self) -> None:
        if self._began is not None:
            if (card := self._scribe.question) is not None:
                card.tick()
            self.changed()
        elif not self.talk.busy and not self.prompt.text and app_of(self).screen is self:
            self.run_worker(self.talk.attend(), group="talk")

    # What people do.

    def on_key(self, event: events.Key) -> None:
        """Whoever types wants to say something, wherever the focus was left."""
        known = event.key in self.active_bindings
        if not event.is_printable or known or self.prompt.has_focus or event.character is None:
            return
        event.stop()
        event.prevent_default()
        self.prompt.focus()
        if not self.prompt.ignores(event.character):
            self.prompt.insert(event.character)

    @on(Prompt.Sent)
    async def _sent(self, event: Prompt.Sent) -> None:
        self._leaving = False
        text = event.text.strip()
        card = self._scribe.question
        if text in {"/resume", "/sessions"} and not self.talk.busy:
            self.action_sessions()
        elif text == "/model" and not self.talk.busy:
            self.action_models()
        elif card is not None and card.takes_words and event.manner is None:
            card.decide(text)
        else:
            self.talk.add(event.text, event.manner)
            self.run_worker(self.talk.go_on(), group="talk")

    @on(Prompt.Left)
    def _left(self) -> None:
        self.post_message(Going(0))

    @on(Suggestions.Taken)
    def _taken(self, event: Suggestions.Taken) -> None:
        self.prompt.take(event.suggestion)

    @on(QuestionCard.Decided)
    async def _decided(self, event: QuestionCard.Decided) -> None:
        self.prompt.focus()
        companion = self._house.companion
        try:
            await self._house.aside.do(lambda: companion.answer(event.question, event.words))
        except HermesError as error:
            await self.show_note(error.sentence, "error")

    @on(QuestionCard.Left)
    def _question_left(self) -> None:
        self.prompt.focus()

    @on(Transcript.Moved)
    def _moved(self) -> None:
        self.changed()

    @on(Copied)
    def _copied(self, event: Copied) -> None:
        app_of(self).copy_to_clipboard(event.text)
        self.notify(f"Copied: {fit(flat(event.text), 60)}", timeout=2, markup=False)

    def action_send(self, manner: str) -> None:
        """What was typed, and what it does to the turn that is going on."""
        self.prompt.submit(Manner(manner))

    def action_stop_or_leave(self) -> None:
        if (chosen := self.get_selected_text()) is not None:
            self.post_message(Copied(chosen))
            self.clear_selection()
        elif self._leaving:
            self.post_message(Going(130))
        elif self._began is not None or self.talk.busy or self.talk.queued:
            self._stop()
        elif self.prompt.text:
            self.prompt.empty()
        else:
            self._leaving = True
            self.notify("Ctrl+C once more leaves; so do Ctrl+D and /quit.", timeout=3)

    def _stop(self) -> None:
        self._leaving = self._stopping = True
        self.notify("Stopping. Ctrl+C again leaves at once.", timeout=3)
        self.talk.interrupt()

    def _has_stopped(self) -> None:
        """What was said about stopping is over."""
        if self._stopping:
            self._stopping = False
            ui = app_of(self)
            # After the notice itself, which may still be on its way there.
            ui.call_later(ui.clear_notifications)

    def action_back(self) -> None:
        """Esc: from a card to the prompt, else it ends what is going on."""
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif self._began is not None:
            self._stopping = True
            self.notify("Stopping.", timeout=2)
            self.talk.interrupt()

    async def action_toggle_last(self) -> None:
        cards = self.transcript.query(Fold)
        if cards:
            await cards.last().action_flip()

    def action_copy_code(self) -> None:
        from hermes.tui.widgets.code import Code  # noqa: PLC0415 - as in `_prepare`

        codes = self.transcript.query(Code)
        if codes:
            codes.last().action_copy()
        else:
            self.notify("There is no code yet.", timeout=2)

    def action_scroll(self, way: int) -> None:
        if way < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    def action_end(self) -> None:
        self.transcript.go_to_end()

    def action_keys(self) -> None:
        from hermes.tui.screens.keys import Keys  # noqa: PLC0415 - as in `_prepare`

        app_of(self).push_screen(Keys())

    @work(group="picking", exclusive=True)
    async def action_sessions(self) -> None:
        from hermes.tui.screens.pickers import session_picker  # noqa: PLC0415 - as in `_prepare`

        await self._opened.wait()
        picker = session_picker(self._house, self._now.session)
        if chosen := await app_of(self).push_screen_wait(picker):
            await self._command(f"/resume {chosen}")

    @work(group="picking", exclusive=True)
    async def action_models(self) -> None:
        from hermes.tui.screens.pickers import model_picker  # noqa: PLC0415 - as in `_prepare`

        await self._opened.wait()
        if chosen := await app_of(self).push_screen_wait(model_picker(self._house)):
            await self._command(f"/model {chosen}")

    async def _command(self, line: str) -> None:
        self.talk.add(line)
        await self.talk.go_on()
