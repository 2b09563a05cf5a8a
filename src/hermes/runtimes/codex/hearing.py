"""One turn as codex tells it, turned into our events; it knows at any moment what was heard."""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw, structs

from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.runtime import Heard
from hermes.runtimes.codex import names
from hermes.runtimes.codex.errors import Told
from hermes.runtimes.codex.items import Came, Item, Work, came_of, thoughts_of, work_of
from hermes.runtimes.codex.notes import (
    DeltaNote,
    DiffNote,
    End,
    EndNote,
    ErrorNote,
    ItemNote,
    PlanNote,
)
from hermes.runtimes.codex.spending import Spending
from hermes.runtimes.codex.wire import Incoming
from hermes.schema.attachments import is_strange
from hermes.schema.events import Notice, ReasoningDelta, Said, TextDelta, ToolProgress, ToolStarted
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Stop, Text, ToolCall, User

ABORTED = re.compile(r"<turn_aborted\s*/?>.*", re.DOTALL)
"""Some versions end a turn with these words instead of saying that it has ended."""
INTERRUPTED = "Interrupted while running; the outcome is unknown."
EVERY = ""
"""In place of an item: leave for all of them, to the end of the turn."""
LATE = 2.0
"""Seconds by which codex may be late in telling that a command began."""


class Running(Protocol):
    """A command of codex's, looked at as we look at our own."""

    @property
    def shown(self) -> bool:
        """Whether strangers' words may be in what it prints."""
        ...

    @property
    def unverified(self) -> bool:
        """Whether it could read files that somebody else wrote."""
        ...

    def brings(self) -> None:
        """It may bring something from outside, whatever its words say."""
        ...

    def over(self) -> None:
        """From now on nothing more counts as brought by it."""
        ...


class _Open:
    """A call that has begun; it is told when no other one before it is still open."""

    def __init__(self, work: Work, *, strange: bool) -> None:
        self.work = work
        self.strange = strange
        self.told = False
        self.came: Came | None = None


class Hearing:
    """`model` and `provider` are those of the thread. Feed it what comes, tell what it gives."""

    def __init__(self, model: str = "", provider: str = "") -> None:
        self._model = model
        self._provider = provider
        self._open: dict[str, _Open] = {}
        self._thoughts: list[str] = []
        self._text = ""
        self._partial: dict[str, str] = {}
        self.spending = Spending()
        self._steered: dict[str, User] = {}
        self._shown_diff = ""
        self._trouble = Told()
        self.turn = ""
        self.end: End | None = None
        self.aborted = False
        self.answered = False
        """Whether a message of codex's came to its end."""
        self.tool_ended = False
        """Whether the last thing that happened was the end of a tool."""
        self.last = ""
        """The id of the last message that was told and that codex knows, too."""
        self.changes: dict[str, Item] = {}
        """Changes of files by their items, for whoever is asked about them."""
        self.iterations = 0
        self._foreign = False
        self._moment = 0.0
        self._running: dict[str, Running] = {}
        self._beyond: set[str] = set()
        self._ways: Mapping[str, Callable[[Raw], list[Heard]]] = {
            names.ITEM_STARTED: self._begin,
            names.ITEM_COMPLETED: self._complete,
            names.TERMINAL_INPUT: self._type,
            names.USAGE_UPDATED: self._spend,
            names.PLAN_UPDATED: self._plan,
            names.DIFF_UPDATED: self._diff,
            names.ERROR: self._hear_trouble,
            names.WARNING: self._hear_trouble,
            names.TURN_STARTED: self._start,
            names.TURN_COMPLETED: self._finish,
        }

    @property
    def foreign(self) -> bool:
        """Whether strangers' words were heard: read by codex, or said by people meanwhile."""
        return self._foreign

    @foreign.setter
    def foreign(self, heard: bool) -> None:
        """Codex may write down what it heard, also by a command that it still talks to."""
        if heard and not self._foreign:
            for running in self._running.values():
                running.brings()
        self._foreign = heard

    def steered(self, message: User) -> None:
        """It was given to codex; it is told when codex has read it."""
        self._steered[message.id] = message
        self.foreign |= is_strange(message)

    def unsteered(self, message: User) -> None:
        self._steered.pop(message.id, None)

    def begun(self, note: Incoming) -> tuple[Item, float | None] | None:
        """The item of a command, an edit or an agent that begins with this note, and since when.

        Codex starts a program before it tells so, but not before what was told last had ended.
        """
        try:
            if note.method == names.TERMINAL_INPUT:
                return self._typed(msgspec.json.decode(note.params, type=DeltaNote))
            if note.method != names.ITEM_STARTED:
                return None
            found = msgspec.json.decode(note.params, type=ItemNote)
        except (msgspec.DecodeError, RecursionError):
            return None
        if found.item.type not in {"commandExecution", "fileChange", *names.AGENTS}:
            return None
        told = found.started_at_ms / 1000
        return found.item, max(told - LATE, self._moment) if told else None

    def _typed(self, note: DeltaNote) -> tuple[Item, float | None] | None:
        """What is typed into a program of an earlier turn, which nobody looks at any more."""
        if note.item_id in self._running:
            return None
        item = Item(type="commandExecution", id=note.item_id, command=note.stdin)
        return item, self._moment or None

    def watched(self, item: str, running: Running) -> None:
        """The command of an item has begun; what it prints may be read long before its end."""
        beyond = not self._beyond.isdisjoint({item, EVERY})
        if self.foreign or beyond:
            running.brings()
        self.foreign |= running.shown or beyond
        self._running[item] = running

    def let_out(self, item: str) -> None:
        """The command of an item, or of `EVERY` one, may leave the sandbox or use the network."""
        self._beyond.add(item)
        found = [one for key, one in self._running.items() if item in {key, EVERY}]
        for running in found if self.foreign else ():
            running.brings()
        self.foreign |= bool(found)

    @property
    def unheard(self) -> tuple[User, ...]:
        return tuple(self._steered.values())

    @property
    def trouble(self) -> Told:
        """The last error that was told in the turn."""
        return self._trouble

    def feed(self, note: Incoming) -> list[Heard]:
        """Raises nothing: what cannot be read says nothing; it may have brought anything."""
        try:
            return self._feed(note)
        except (msgspec.DecodeError, RecursionError):
            self.foreign |= note.method == names.ITEM_COMPLETED
            return []

    def _feed(self, note: Incoming) -> list[Heard]:
        if note.method in names.DELTAS:
            return self._delta(note.method, msgspec.json.decode(note.params, type=DeltaNote))
        hear = self._ways.get(note.method)
        return hear(note.params) if hear is not None else []

    def _delta(self, method: str, note: DeltaNote) -> list[Heard]:
        self.tool_ended = False
        match method:
            case names.TEXT_DELTA:
                self._partial[note.item_id] = self._partial.get(note.item_id, "") + note.delta
                return [TextDelta(note.delta)]
            case names.OUTPUT_DELTA | names.MCP_PROGRESS:
                found = self._open.get(note.item_id)
                text = note.delta or note.message
                return [ToolProgress(found.work.id, text)] if found and found.told and text else []
            case _:
                return [ReasoningDelta(note.delta)]

    def _begin(self, params: Raw) -> list[Heard]:
        note = msgspec.json.decode(params, type=ItemNote)
        item, self._moment = note.item, max(self._moment, note.started_at_ms / 1000)
        self.tool_ended = False
        if item.type == "fileChange":
            self.changes[item.id] = item
        work = work_of(item)
        if work is None or item.id in self._open:
            return []
        self._open[item.id] = _Open(work, strange=came_of(item).foreign)
        return self._tell_open()

    def _complete(self, params: Raw) -> list[Heard]:
        note = msgspec.json.decode(params, type=ItemNote)
        item, self._moment = note.item, max(self._moment, note.completed_at_ms / 1000)
        self.tool_ended = False
        match item.type:
            case "agentMessage":
                return self._speak(item)
            case "reasoning":
                self._thoughts.append(thoughts_of(item))
                return []
            case "userMessage":
                return self._hear_user(item)
            case "contextCompaction":
                return [Notice("Codex has shortened what it remembers of this conversation.")]
            case _:
                return self._end_work(item)

    def _end_work(self, item: Item) -> list[Heard]:
        work = work_of(item)
        self.tool_ended = work is not None or item.type == "dynamicToolCall"
        if work is None:
            return [Notice(f"Codex: {item.type}.")] if item.type in names.ITEMS - _QUIET else []
        self.iterations += 1
        came = came_of(item)
        if item.type == "commandExecution" and item.id not in self._open:
            # It began in an earlier turn: what it reached meanwhile is not known.
            came = structs.replace(came, foreign=True)
        found = self._open.setdefault(item.id, _Open(work, strange=came.foreign))
        found.came = self._marked(item.id, came)
        if item.type not in names.AGENTS and (running := self._running.pop(item.id, None)):
            running.over()
        self.foreign |= found.came.foreign
        return self._tell_open()

    def _marked(self, item: str, came: Came) -> Came:
        running = self._running.get(item)
        shown = item in self._beyond
        if running is not None:
            shown |= running.shown or EVERY in self._beyond
        unverified = running is not None and running.unverified
        return structs.replace(came, foreign=came.foreign or shown, unverified=unverified)

    def _tell_open(self) -> list[Heard]:
        """Calls one after the other, each with its result, in the order in which they began."""
        heard: list[Heard] = []
        for key, one in list(self._open.items()):
            if not one.told:
                one.told = True
                work = one.work
                call = ToolCall(work.id, work.name, work.args)
                heard += [self._said((call,), Stop.TOOLS), ToolStarted(call, work.effect)]
            if one.came is None:
                break
            heard.append(self._result(one.work, one.came))
            del self._open[key]
        return heard

    def _result(self, work: Work, came: Came) -> Said:
        self.last = new_id("msg")
        return Said(
            Result(
                self.last,
                work.id,
                (Text(came.text),),
                came.failed,
                came.shown,
                came.foreign,
                came.unverified,
            )
        )

    def _speak(self, item: Item) -> list[Heard]:
        self._partial.pop(item.id, None)
        text = item.text or ""
        if ABORTED.search(text):
            self.aborted = True
            text = ABORTED.sub("", text)
        heard = self.flush()
        if text.strip():
            self._text = text
            self.answered = True
        return heard

    def _hear_user(self, item: Item) -> list[Heard]:
        message = self._steered.pop(item.client_id or "", None)
        if message is None:
            return []
        heard = [*self._close_partial(Stop.END), Said(message)]
        self.last = message.id
        return heard

    def _type(self, params: Raw) -> list[Heard]:
        """Into a program at work, or nothing, to read on: what came of it is not told."""
        note = msgspec.json.decode(params, type=DeltaNote)
        if note.stdin or note.item_id not in self._open:
            self.let_out(note.item_id)
            self.foreign = True
        return []

    def _spend(self, params: Raw) -> list[Heard]:
        self.spending.feed(params, self.turn)
        return []

    def _plan(self, params: Raw) -> list[Heard]:
        words = msgspec.json.decode(params, type=PlanNote).words
        return [Notice(words)] if words else []

    def _diff(self, params: Raw) -> list[Heard]:
        words = msgspec.json.decode(params, type=DiffNote).words
        if not words or words == self._shown_diff:
            return []
        self._shown_diff = words
        return [Notice(words)]

    def _hear_trouble(self, params: Raw) -> list[Heard]:
        note = msgspec.json.decode(params, type=ErrorNote)
        words = note.error.message or note.message
        if note.error.message:
            self._trouble = note.error
        return [Notice(f"Codex: {one_line(words, 300)}")] if words else []

    def _start(self, params: Raw) -> list[Heard]:
        """A turn that nobody asked for by name has its name from here."""
        self.turn = self.turn or msgspec.json.decode(params, type=EndNote).turn.id
        return []

    def _finish(self, params: Raw) -> list[Heard]:
        end = msgspec.json.decode(params, type=EndNote).turn
        if self.turn and end.id and end.id != self.turn:
            return []
        self.end = end
        return []

    def flush(self) -> list[Heard]:
        """What was said and not yet told."""
        return [self._said((), Stop.END)] if self._text else []

    def close(self) -> list[Heard]:
        """The turn is over: whatever is open is closed, half an answer is kept as one."""
        cut = self.end is None or self.end.status != "completed"
        heard: list[Heard] = []
        for key, one in self._open.items():
            if one.came is None:
                came = Came(INTERRUPTED, failed=True, foreign=one.strange)
                one.came = self._marked(key, came)
        for running in self._running.values():
            running.over()
        self._running.clear()
        heard += self._tell_open()
        heard += self._close_partial(Stop.CANCELLED if cut else Stop.END)
        return heard

    def _close_partial(self, stop: Stop) -> list[Heard]:
        """Codex says no more about an answer that was broken off: neither at a steer nor an end."""
        heard = self.flush()
        known = self.last
        partial = "".join(self._partial.values())
        self._partial.clear()
        if partial.strip():
            self._text = partial
            heard.append(self._said((), stop))
            if stop is Stop.CANCELLED:
                self.last = known
        return heard

    def _said(self, calls: tuple[ToolCall, ...], stop: Stop) -> Said:
        thoughts = tuple(Reasoning(text) for text in self._thoughts if text.strip())
        words = (Text(self._text),) if self._text else ()
        message: Message = Assistant(
            new_id("msg"),
            (*thoughts, *words, *calls),
            stop,
            self.spending.take(),
            self._model,
            self._provider,
        )
        self._thoughts, self._text = [], ""
        self.last = message.id
        return Said(message)


_QUIET = frozenset({"dynamicToolCall", "plan", "agentMessage", "userMessage"})
