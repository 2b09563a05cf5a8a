"""Follow every turn of a profile in this process and publish it to the pages.

The turn may have begun on the page, in a terminal, in a chat app or over the API.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import assert_never

import anyio

from hermes.kit.clock import Clock
from hermes.kit.text import one_line
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
from hermes.schema.messages import Assistant, Result, Text, ToolCall, Trust, User, display_parts
from hermes.schema.questions import Question
from hermes.schema.scope import OWNER, Scope
from hermes.session.runner import Runner
from hermes.session.turn_request import TurnRequest
from hermes.web import entries
from hermes.web.feed import Feed
from hermes.web.html import Html
from hermes.web.markdown import LARGE, LiveMarkdown, Patch, render_in_thread
from hermes.web.texts import text

log = logging.getLogger(__name__)

FLUSH_INTERVAL = 0.05
"""Seconds between two updates of a text that is being written."""
MAX_PROGRESS = 20_000
MAX_WORDS = 80
_UNLISTED = frozenset({"api_task", "review", "subagent"})
"""Sources of sessions that the list of sessions leaves out; their end sends no notification."""


class LiveTurn:
    """The state of a running turn beyond its stored messages."""

    def __init__(self, request: TurnRequest, scope: Scope, now: Callable[[], float]) -> None:
        self.run = scope.run
        self.session = request.session.id
        self.source = scope.source
        self.name = request.session.title or _first_words(request.message)
        self.is_listed = scope.principal == OWNER and scope.source not in _UNLISTED
        self.started = False
        self.markdown = LiveMarkdown()
        self.reasoning = ""
        self.reasoning_sent = 0
        self.calls: dict[str, ToolCall] = {}
        self.progress: dict[str, str] = {}
        self.questions: dict[str, Question] = {}
        self._began: dict[str, float] = {}
        self._now = now
        self._start = now()
        self._answers = 0
        self.is_shown = False

    @property
    def entry_id(self) -> str:
        return f"live-{self.run}-{self._answers}"

    @property
    def seconds(self) -> float:
        """How long the turn has been running."""
        return self._now() - self._start

    @property
    def has_text(self) -> bool:
        return bool(self.markdown.text or self.reasoning)

    def start_tool(self, call: ToolCall) -> None:
        self.calls[call.id] = call
        self._began[call.id] = self._now()

    def end_tool(self, call: str) -> float | None:
        self.progress.pop(call, None)
        began = self._began.pop(call, None)
        return None if began is None else self._now() - began

    def next_answer(self) -> None:
        """Start a new entry, because the current text was stored or discarded."""
        self.markdown, self.reasoning, self.is_shown = LiveMarkdown(), "", False
        self.reasoning_sent = 0
        self._answers += 1

    def entries(self) -> list[Html]:
        """Return the entries that a newly opened page shows below the stored messages."""
        found: list[Html] = []
        if self.has_text:
            found.append(entries.live_entry(self.entry_id, self.markdown.blocks(), self.reasoning))
        return [*found, *map(entries.question_entry, self.questions.values())]


class LiveTurns:
    """The running turns of a profile by session."""

    def __init__(self, feed: Feed, clock: Clock) -> None:
        self.feed = feed
        self._clock = clock
        self._turns: dict[str, LiveTurn] = {}
        self._dirty: dict[str, LiveTurn] = {}
        self._wakeup = anyio.Event()
        self._unrendered: list[tuple[str, str, str]] = []
        """Session, entry and text of large answers that are only partly parsed."""
        self.own: set[str] = set()
        """Sessions whose turn was started on a page, so that a page can stop it."""
        self.waiting_elsewhere = 0
        """Questions and decisions that wait for an answer without a turn of this process."""
        self.facts: dict[str, int] = {}
        """Per session, the number of facts published; tells whether a transcript changed."""
        self.messages: dict[str, str] = {}
        """Per session, the last message that was published."""

    def get(self, session: str) -> LiveTurn | None:
        turn = self._turns.get(session)
        return turn if turn is not None and turn.started else None

    @property
    def sessions(self) -> Mapping[str, LiveTurn]:
        return {name: turn for name, turn in self._turns.items() if turn.started}

    @contextmanager
    def observing(self, runner: Runner) -> Generator[None]:
        with runner.observed_by(self._observe):
            yield

    def _observe(self, request: TurnRequest, scope: Scope) -> Callable[[Event], None]:
        session = request.session.id
        turn = LiveTurn(request, scope, self._clock.monotonic)
        self._turns[session] = turn
        replaces = request.replaces_from is not None

        def on_event(event: Event) -> None:
            try:
                self._on_event(turn, event, replaces=replaces)
            except Exception:
                # An error in the page must not end a turn.
                log.exception("cannot show an event of run %s", turn.run)

        return on_event

    async def flush_regularly(self) -> None:
        """Publish growing texts; each costs one event per interval, whatever the model's speed."""
        while True:
            await self._wakeup.wait()
            self._wakeup = anyio.Event()
            before = self._clock.monotonic()
            for turn in list(self._dirty.values()):
                try:
                    await self._flush_any(turn)
                except Exception:
                    # A text that cannot be shown must not stop the others.
                    log.exception("cannot show the text of run %s", turn.run)
            await self._render_answers()
            cost = self._clock.monotonic() - before
            await self._clock.sleep(max(FLUSH_INTERVAL, 10 * cost))

    async def _flush_any(self, turn: LiveTurn) -> None:
        """Publish a text of any size; other turns go on while a large one is parsed."""
        if not turn.markdown.is_large or not self.feed.is_wanted(turn.session):
            self._flush(turn)
            return
        del self._dirty[turn.session]
        answer = turn.entry_id
        patch = await turn.markdown.patch_in_thread()
        is_current = self._turns.get(turn.session) is turn and turn.entry_id == answer
        if patch is not None and is_current:
            self._publish_patch(turn, patch)

    def _flush(self, turn: LiveTurn) -> None:
        """Publish a text; a large one is left to the next regular flush."""
        if turn.session not in self._dirty:
            return
        if not self.feed.is_wanted(turn.session):
            del self._dirty[turn.session]
            self.feed.skip(turn.session)
        elif not turn.markdown.is_large:
            del self._dirty[turn.session]
            self._publish_patch(turn, turn.markdown.patch())

    def _publish_patch(self, turn: LiveTurn, patch: Patch) -> None:
        at, turn.reasoning_sent = turn.reasoning_sent, len(turn.reasoning)
        if not turn.is_shown:
            turn.is_shown = True
            shown = entries.live_entry(turn.entry_id, patch.blocks, turn.reasoning)
            self._publish(turn, "entry", id=turn.entry_id, html=shown)
            return
        self._publish(
            turn,
            "blocks",
            id=turn.entry_id,
            start=patch.start,
            blocks=patch.blocks[patch.start :],
            thoughts={"at": at, "text": turn.reasoning[at:]},
        )

    def _mark(self, turn: LiveTurn) -> None:
        self._dirty[turn.session] = turn
        self._wakeup.set()

    def _publish(self, turn: LiveTurn, kind: str, **data: object) -> None:
        self.feed.publish(kind, data, turn.session)

    def _show(
        self, turn: LiveTurn, kind: str, identity: str, shown: Callable[[], Html], **data: object
    ) -> None:
        """Render and publish an entry; nothing is rendered for a session that no page shows."""
        if self.feed.is_wanted(turn.session):
            self._publish(turn, kind, id=identity, html=shown(), **data)
        else:
            self.feed.skip(turn.session)

    def _on_event(self, turn: LiveTurn, event: Event, *, replaces: bool) -> None:
        match event:
            case TextDelta(text=words):
                turn.markdown.add(words)
                self._mark(turn)
            case ReasoningDelta(text=words):
                turn.reasoning += words
                self._mark(turn)
            case ToolProgress(call=call, text=words):
                words = words[-MAX_PROGRESS:]
                shown = (turn.progress.get(call, "") + words)[-MAX_PROGRESS:]
                turn.progress[call] = shown
                self._publish(turn, "progress", id=entries.card_id(call), text=words)
            case Notice(text=words, passing=passing):
                self._publish(turn, "notice", text=words, passing=passing)
            case StreamReset():
                self._publish(turn, "remove", id=turn.entry_id)
                self._dirty.pop(turn.session, None)
                turn.next_answer()
            case _:
                self._flush(turn)
                self.facts[turn.session] = self.facts.get(turn.session, 0) + 1
                self._on_fact(turn, event, replaces=replaces)

    def _on_fact(
        self,
        turn: LiveTurn,
        event: RunStarted
        | MessageAdded
        | ToolStarted
        | QuestionAsked
        | QuestionAnswered
        | RunEnded,
        *,
        replaces: bool,
    ) -> None:
        match event:
            case RunStarted():
                self._on_start(turn, replaces=replaces)
            case MessageAdded(message=message):
                self._on_message(turn, message)
            case ToolStarted(call=call):
                turn.start_tool(call)
                card = partial(entries.tool_card, call, None, running=True)
                self._show(turn, "card", entries.card_id(call.id), card)
            case QuestionAsked(question=question):
                turn.questions[question.id] = question
                shown = partial(entries.question_entry, question)
                self._show(turn, "entry", f"q-{question.id}", shown, focus=True)
                self._publish_pending(asked_in=turn.session)
            case QuestionAnswered(question=identity, answer=answer):
                question = turn.questions.pop(identity, None)
                if question is not None:
                    shown = partial(entries.question_entry, question, answer)
                    self._show(turn, "entry", f"q-{identity}", shown)
                self._publish_pending()
            case RunEnded():
                self._on_end(turn, event)
            case _:
                assert_never(event)

    def _on_start(self, turn: LiveTurn, *, replaces: bool) -> None:
        turn.started = True
        if replaces:
            self._publish(turn, "reload")
        here = turn.session in self.own
        self._publish(turn, "run", running=True, here=here, source=turn.source)
        self.feed.publish("activity", {"session": turn.session, "running": True})

    def _on_message(self, turn: LiveTurn, message: User | Assistant | Result) -> None:
        now = self._clock.now()
        self.messages[turn.session] = message.id
        match message:
            case User():
                if message.trust is not Trust.PROGRAM:
                    shown = partial(entries.user_entry, message, now)
                    self._show(turn, "entry", entries.message_id(message), shown)
            case Assistant():
                for call in message.calls:
                    turn.calls[call.id] = call
                self._show_answer(turn, message)
                self._dirty.pop(turn.session, None)
                turn.next_answer()
            case Result():
                call = turn.calls.get(message.call)
                seconds = turn.end_tool(message.call)
                if call is not None:
                    card = partial(entries.tool_card, call, message, seconds=seconds)
                    self._show(turn, "card", entries.card_id(message.call), card)

    def _show_answer(self, turn: LiveTurn, message: Assistant) -> None:
        """Show an answer; a large one as far as it is parsed, until it is rendered as a whole."""
        identity, drafts = entries.message_id(message), dict[str, Html]()
        texts = [part.text for part in message.parts if isinstance(part, Text)]
        if len(texts) == 1 and len(texts[0]) > LARGE and self.feed.is_wanted(turn.session):
            drafts[texts[0]] = turn.markdown.draft()
            self._unrendered.append((turn.session, identity, texts[0]))
            self._wakeup.set()
        shown = partial(entries.answer_entry, message, {}, self._clock.now(), {}, drafts)
        self._show(turn, "entry", identity, shown, replaces=turn.entry_id)

    async def _render_answers(self) -> None:
        while self._unrendered:
            session, identity, words = self._unrendered.pop(0)
            try:
                html = await render_in_thread(words)
            except Exception:
                # An answer that cannot be shown must not stop the others.
                log.exception("cannot show the answer %s", identity)
                continue
            nothing = {"at": 0, "text": ""}
            data = {"id": identity, "start": 0, "blocks": [html], "thoughts": nothing}
            self.feed.publish("blocks", data, session)

    def _on_end(self, turn: LiveTurn, ended: RunEnded) -> None:
        if self._turns.get(turn.session) is turn:
            del self._turns[turn.session]
        if turn.has_text:
            self._publish(turn, "remove", id=turn.entry_id)
        if ended.outcome in {Outcome.FAILED, Outcome.EXHAUSTED} and ended.reason:
            shown = entries.notice_entry(ended.reason, f"end-{turn.run}", kind="error")
            self._publish(turn, "entry", id=f"end-{turn.run}", html=shown)
        for question in turn.questions.values():
            shown = partial(entries.question_entry, question, "")
            self._show(turn, "entry", f"q-{question.id}", shown)
        self._publish(turn, "run", running=False, outcome=ended.outcome.value)
        ended_turn: dict[str, object] = {"session": turn.session, "running": False}
        if turn.is_listed:
            ended_turn |= {"seconds": turn.seconds, "name": turn.name}
        self.feed.publish("activity", ended_turn)
        if turn.questions:
            self._publish_pending()

    def show_waiting_elsewhere(self, count: int, asked_in: str) -> None:
        self.waiting_elsewhere = count
        self._publish_pending(asked_in)

    def _publish_pending(self, asked_in: str = "") -> None:
        """`asked_in` is the session of a new question."""
        count = sum(len(turn.questions) for turn in self._turns.values()) + self.waiting_elsewhere
        label = text("waiting_count", count=str(count)) if count else ""
        self.feed.publish("pending", {"count": count, "label": label, "session": asked_in})


def _first_words(message: User | None) -> str:
    parts = display_parts(message) if message is not None else ()
    return one_line(" ".join(part.text for part in parts if isinstance(part, Text)), MAX_WORDS)
