"""One turn as codex tells it, turned into our events; it knows at any moment what was heard."""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import Raw, structs

from hermes.kit.ids import new_id
from hermes.kit.text import one_line
from hermes.ports.runtime import RuntimeEvent
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import CodexError
from hermes.runtimes.codex.items import (
    CallOutcome,
    CodexCall,
    ThreadItem,
    call_of_item,
    outcome_of_item,
    reasoning_text,
)
from hermes.runtimes.codex.notifications import (
    CodexTurnEnd,
    DeltaNotification,
    DiffNotification,
    ErrorNotification,
    ItemNotification,
    PlanNotification,
    TurnNotification,
    UsageMeter,
)
from hermes.runtimes.codex.protocol import RpcMessage
from hermes.schema.attachments import has_untrusted_text
from hermes.schema.events import (
    MessageAdded,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Message, Reasoning, Result, Stop, Text, ToolCall, User

ABORTED_MARK = re.compile(r"<turn_aborted\s*/?>.*", re.DOTALL)
"""Some versions end a turn with these words instead of saying that it has ended."""
OUTCOME_UNKNOWN = "Interrupted while running; the outcome is unknown."
ALL_ITEMS = ""
"""In place of an item: leave for all of them, to the end of the turn."""
MAX_START_DELAY = 2.0
"""Seconds by which codex may be late in telling that a command began."""


class WatchedCommand(Protocol):
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


class _OpenCall:
    """A call that has begun; it is told when no other one before it is still open."""

    def __init__(self, work: CodexCall, *, strange: bool) -> None:
        self.work = work
        self.strange = strange
        self.told = False
        self.came: CallOutcome | None = None


class EventMapper:
    """`model` and `provider` are those of the thread. Feed it what comes, tell what it gives."""

    def __init__(self, model: str = "", provider: str = "") -> None:
        self._model = model
        self._provider = provider
        self._open: dict[str, _OpenCall] = {}
        self._thoughts: list[str] = []
        self._text = ""
        self._partial: dict[str, str] = {}
        self.spending = UsageMeter()
        self._steered: dict[str, User] = {}
        self._shown_diff = ""
        self._trouble = CodexError()
        self.turn = ""
        self.end: CodexTurnEnd | None = None
        self.aborted = False
        self.answered = False
        """Whether a message of codex's came to its end."""
        self.tool_ended = False
        """Whether the last thing that happened was the end of a tool."""
        self.last = ""
        """The id of the last message that was told and that codex knows, too."""
        self.changes: dict[str, ThreadItem] = {}
        """Changes of files by their items, for whoever is asked about them."""
        self.iterations = 0
        self._foreign = False
        self._moment = 0.0
        self._running: dict[str, WatchedCommand] = {}
        self._unsandboxed: set[str] = set()
        self._ways: Mapping[str, Callable[[Raw], list[RuntimeEvent]]] = {
            protocol.ITEM_STARTED: self._begin,
            protocol.ITEM_COMPLETED: self._complete,
            protocol.TERMINAL_INPUT: self._type,
            protocol.USAGE_UPDATED: self._spend,
            protocol.PLAN_UPDATED: self._plan,
            protocol.DIFF_UPDATED: self._diff,
            protocol.ERROR: self._on_error,
            protocol.WARNING: self._on_error,
            protocol.TURN_STARTED: self._start,
            protocol.TURN_COMPLETED: self._finish,
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
        self.foreign |= has_untrusted_text(message)

    def forget_steered(self, message: User) -> None:
        self._steered.pop(message.id, None)

    def begun(self, note: RpcMessage) -> tuple[ThreadItem, float | None] | None:
        """The item of a command, an edit or an agent that begins with this note, and since when.

        Codex starts a program before it tells so, but not before what was told last had ended.
        """
        try:
            if note.method == protocol.TERMINAL_INPUT:
                return self._typed(msgspec.json.decode(note.params, type=DeltaNotification))
            if note.method != protocol.ITEM_STARTED:
                return None
            found = msgspec.json.decode(note.params, type=ItemNotification)
        except (msgspec.DecodeError, RecursionError):
            return None
        if found.item.type not in {"commandExecution", "fileChange", *protocol.AGENT_ITEMS}:
            return None
        told = found.started_at_ms / 1000
        return found.item, max(told - MAX_START_DELAY, self._moment) if told else None

    def _typed(self, note: DeltaNotification) -> tuple[ThreadItem, float | None] | None:
        """What is typed into a program of an earlier turn, which nobody looks at any more."""
        if note.item_id in self._running:
            return None
        item = ThreadItem(type="commandExecution", id=note.item_id, command=note.stdin)
        return item, self._moment or None

    def watched(self, item: str, running: WatchedCommand) -> None:
        """The command of an item has begun; what it prints may be read long before its end."""
        beyond = not self._unsandboxed.isdisjoint({item, ALL_ITEMS})
        if self.foreign or beyond:
            running.brings()
        self.foreign |= running.shown or beyond
        self._running[item] = running

    def allow_unsandboxed(self, item: str) -> None:
        """The command of an item, or of `EVERY` one, may leave the sandbox or use the network."""
        self._unsandboxed.add(item)
        found = [one for key, one in self._running.items() if item in {key, ALL_ITEMS}]
        for running in found if self.foreign else ():
            running.brings()
        self.foreign |= bool(found)

    @property
    def unheard(self) -> tuple[User, ...]:
        return tuple(self._steered.values())

    @property
    def trouble(self) -> CodexError:
        """The last error that was told in the turn."""
        return self._trouble

    def feed(self, note: RpcMessage) -> list[RuntimeEvent]:
        """Raises nothing: what cannot be read says nothing; it may have brought anything."""
        try:
            return self._feed(note)
        except (msgspec.DecodeError, RecursionError):
            self.foreign |= note.method == protocol.ITEM_COMPLETED
            return []

    def _feed(self, note: RpcMessage) -> list[RuntimeEvent]:
        if note.method in protocol.DELTAS:
            return self._delta(
                note.method, msgspec.json.decode(note.params, type=DeltaNotification)
            )
        hear = self._ways.get(note.method)
        return hear(note.params) if hear is not None else []

    def _delta(self, method: str, note: DeltaNotification) -> list[RuntimeEvent]:
        self.tool_ended = False
        match method:
            case protocol.TEXT_DELTA:
                self._partial[note.item_id] = self._partial.get(note.item_id, "") + note.delta
                return [TextDelta(note.delta)]
            case protocol.OUTPUT_DELTA | protocol.MCP_PROGRESS:
                found = self._open.get(note.item_id)
                text = note.delta or note.message
                return [ToolProgress(found.work.id, text)] if found and found.told and text else []
            case _:
                return [ReasoningDelta(note.delta)]

    def _begin(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ItemNotification)
        item, self._moment = note.item, max(self._moment, note.started_at_ms / 1000)
        self.tool_ended = False
        if item.type == "fileChange":
            self.changes[item.id] = item
        work = call_of_item(item)
        if work is None or item.id in self._open:
            return []
        self._open[item.id] = _OpenCall(work, strange=outcome_of_item(item).foreign)
        return self._open_events()

    def _complete(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ItemNotification)
        item, self._moment = note.item, max(self._moment, note.completed_at_ms / 1000)
        self.tool_ended = False
        match item.type:
            case "agentMessage":
                return self._speak(item)
            case "reasoning":
                self._thoughts.append(reasoning_text(item))
                return []
            case "userMessage":
                return self._on_user_message(item)
            case "contextCompaction":
                return [Notice("Codex has shortened what it remembers of this conversation.")]
            case _:
                return self._end_call(item)

    def _end_call(self, item: ThreadItem) -> list[RuntimeEvent]:
        work = call_of_item(item)
        self.tool_ended = work is not None or item.type == "dynamicToolCall"
        if work is None:
            return (
                [Notice(f"Codex: {item.type}.")]
                if item.type in protocol.ITEM_TYPES - _SILENT_ITEMS
                else []
            )
        self.iterations += 1
        came = outcome_of_item(item)
        if item.type == "commandExecution" and item.id not in self._open:
            # It began in an earlier turn: what it reached meanwhile is not known.
            came = structs.replace(came, foreign=True)
        found = self._open.setdefault(item.id, _OpenCall(work, strange=came.foreign))
        found.came = self._marked(item.id, came)
        if item.type not in protocol.AGENT_ITEMS and (running := self._running.pop(item.id, None)):
            running.over()
        self.foreign |= found.came.foreign
        return self._open_events()

    def _marked(self, item: str, came: CallOutcome) -> CallOutcome:
        running = self._running.get(item)
        shown = item in self._unsandboxed
        if running is not None:
            shown |= running.shown or ALL_ITEMS in self._unsandboxed
        unverified = running is not None and running.unverified
        return structs.replace(came, foreign=came.foreign or shown, unverified=unverified)

    def _open_events(self) -> list[RuntimeEvent]:
        """Calls one after the other, each with its result, in the order in which they began."""
        heard: list[RuntimeEvent] = []
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

    def _result(self, work: CodexCall, came: CallOutcome) -> MessageAdded:
        self.last = new_id("msg")
        return MessageAdded(
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

    def _speak(self, item: ThreadItem) -> list[RuntimeEvent]:
        self._partial.pop(item.id, None)
        text = item.text or ""
        if ABORTED_MARK.search(text):
            self.aborted = True
            text = ABORTED_MARK.sub("", text)
        heard = self.flush()
        if text.strip():
            self._text = text
            self.answered = True
        return heard

    def _on_user_message(self, item: ThreadItem) -> list[RuntimeEvent]:
        message = self._steered.pop(item.client_id or "", None)
        if message is None:
            return []
        heard = [*self._close_partial(Stop.END), MessageAdded(message)]
        self.last = message.id
        return heard

    def _type(self, params: Raw) -> list[RuntimeEvent]:
        """Into a program at work, or nothing, to read on: what came of it is not told."""
        note = msgspec.json.decode(params, type=DeltaNotification)
        if note.stdin or note.item_id not in self._open:
            self.allow_unsandboxed(note.item_id)
            self.foreign = True
        return []

    def _spend(self, params: Raw) -> list[RuntimeEvent]:
        self.spending.feed(params, self.turn)
        return []

    def _plan(self, params: Raw) -> list[RuntimeEvent]:
        words = msgspec.json.decode(params, type=PlanNotification).words
        return [Notice(words)] if words else []

    def _diff(self, params: Raw) -> list[RuntimeEvent]:
        words = msgspec.json.decode(params, type=DiffNotification).words
        if not words or words == self._shown_diff:
            return []
        self._shown_diff = words
        return [Notice(words)]

    def _on_error(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ErrorNotification)
        words = note.error.message or note.message
        if note.error.message:
            self._trouble = note.error
        return [Notice(f"Codex: {one_line(words, 300)}")] if words else []

    def _start(self, params: Raw) -> list[RuntimeEvent]:
        """A turn that nobody asked for by name has its name from here."""
        self.turn = self.turn or msgspec.json.decode(params, type=TurnNotification).turn.id
        return []

    def _finish(self, params: Raw) -> list[RuntimeEvent]:
        end = msgspec.json.decode(params, type=TurnNotification).turn
        if self.turn and end.id and end.id != self.turn:
            return []
        self.end = end
        return []

    def flush(self) -> list[RuntimeEvent]:
        """What was said and not yet told."""
        return [self._said((), Stop.END)] if self._text else []

    def close(self) -> list[RuntimeEvent]:
        """The turn is over: whatever is open is closed, half an answer is kept as one."""
        cut = self.end is None or self.end.status != "completed"
        heard: list[RuntimeEvent] = []
        for key, one in self._open.items():
            if one.came is None:
                came = CallOutcome(OUTCOME_UNKNOWN, failed=True, foreign=one.strange)
                one.came = self._marked(key, came)
        for running in self._running.values():
            running.over()
        self._running.clear()
        heard += self._open_events()
        heard += self._close_partial(Stop.CANCELLED if cut else Stop.END)
        return heard

    def _close_partial(self, stop: Stop) -> list[RuntimeEvent]:
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

    def _said(self, calls: tuple[ToolCall, ...], stop: Stop) -> MessageAdded:
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
        return MessageAdded(message)


_SILENT_ITEMS = frozenset({"dynamicToolCall", "plan", "agentMessage", "userMessage"})
