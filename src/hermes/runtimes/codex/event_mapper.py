"""Convert one codex turn's notifications into events, and track its state."""

import re
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, structs

from hermes.kit.ids import new_id
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.text import one_line
from hermes.ports.plugins import WatchedCommand
from hermes.ports.runtime import RuntimeEvent
from hermes.runtimes.codex import protocol
from hermes.runtimes.codex.errors import CodexError
from hermes.runtimes.codex.notifications import (
    CallOutcome,
    CodexCall,
    CodexTurnEnd,
    DeltaNotification,
    DiffNotification,
    ErrorNotification,
    ItemNotification,
    PlanNotification,
    ThreadItem,
    TurnNotification,
    UsageMeter,
    call_of_item,
    outcome_of_item,
    reasoning_text,
)
from hermes.runtimes.codex.protocol import RpcMessage
from hermes.schema.events import (
    MessageAdded,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolProgress,
    ToolStarted,
)
from hermes.schema.messages import (
    Assistant,
    Reasoning,
    Result,
    Stop,
    Text,
    ToolCall,
    User,
    has_untrusted_text,
)

ABORTED_MARK = re.compile(r"<turn_aborted\s*/?>")
"""Some versions end a turn with this text instead of a notification."""
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|(?P<ticks>`+)(?!`).*?(?P=ticks)(?!`)"
    r"|\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|'\s*<turn_aborted\s*/?>\s*'|^[ \t]*>[^\n]*",
    re.DOTALL | re.MULTILINE,
)
"""Code and quotations, in which an answer may talk about the marker."""
OUTCOME_UNKNOWN = "Interrupted while running; the outcome is unknown."
ALL_ITEMS = ""
"""Stands for all items until the end of the turn."""
_SILENT_ITEMS = frozenset({"dynamicToolCall", "plan", "agentMessage", "userMessage"})
MAX_START_DELAY = 2.0
"""Seconds by which codex may be late in reporting the start of a command."""


def abort_position(text: str) -> int | None:
    """Where codex says that the turn was aborted; None if the answer at most quotes the marker."""
    if ABORTED_MARK.search(text) is None:
        return None
    plain = _QUOTED.sub(lambda found: " " * len(found[0]), text)
    mark = ABORTED_MARK.search(plain)
    return None if mark is None else mark.start()


class _OpenCall:
    """A call that has started; it is reported when no earlier call is still open."""

    def __init__(self, work: CodexCall, *, untrusted: bool) -> None:
        self.call = work
        self.untrusted = untrusted
        self.emitted = False
        self.outcome: CallOutcome | None = None


class EventMapper:
    """Feed it notifications and emit what it returns. `model` and `provider` are the thread's."""

    def __init__(self, model: str = "", provider: str = "") -> None:
        self._model = model
        self._provider = provider
        self._open: dict[str, _OpenCall] = {}
        self._thoughts: list[str] = []
        self._text = ""
        self._partial: dict[str, str] = {}
        self.usage_meter = UsageMeter()
        self._steered: dict[str, User] = {}
        self._shown_diff = ""
        self.last_error = CodexError()
        """The last error reported in the turn."""
        self.turn = ""
        self.end: CodexTurnEnd | None = None
        self.aborted = False
        self.answered = False
        """Whether a message of codex is complete."""
        self.tool_ended = False
        """Whether the last notification was the end of a tool."""
        self.last_message = ""
        """The id of the last message that was emitted and that codex knows as well."""
        self.changes: dict[str, ThreadItem] = {}
        """File changes by item, for approval requests."""
        self.iterations = 0
        self._has_untrusted_text = False
        self._last_time = 0.0
        self._running: dict[str, WatchedCommand] = {}
        self._unsandboxed: set[str] = set()
        self._handlers: Mapping[str, Callable[[Raw], list[RuntimeEvent]]] = {
            protocol.ITEM_STARTED: self._on_item_started,
            protocol.ITEM_COMPLETED: self._on_item_completed,
            protocol.TERMINAL_INPUT: self._on_terminal_input,
            protocol.USAGE_UPDATED: self._on_usage,
            protocol.PLAN_UPDATED: self._on_plan,
            protocol.DIFF_UPDATED: self._on_diff,
            protocol.ERROR: self._on_error,
            protocol.WARNING: self._on_error,
            protocol.TURN_STARTED: self._on_turn_started,
            protocol.TURN_COMPLETED: self._on_turn_completed,
        }

    @property
    def has_untrusted_text(self) -> bool:
        """Whether codex has seen untrusted text, from its tools or from steering messages."""
        return self._has_untrusted_text

    @has_untrusted_text.setter
    def has_untrusted_text(self, value: bool) -> None:
        """Codex may write untrusted text that it has read, even through a running command."""
        if value and not self._has_untrusted_text:
            for running in self._running.values():
                running.start_recording()
        self._has_untrusted_text = value

    def add_steering(self, message: User) -> None:
        """Track a steering message; it is emitted once codex has read it."""
        self._steered[message.id] = message
        self.has_untrusted_text |= has_untrusted_text(message)

    def forget_steered(self, message: User) -> None:
        self._steered.pop(message.id, None)

    def started_item(self, note: RpcMessage) -> tuple[ThreadItem, float | None] | None:
        """Return the item of a command, an edit or an agent that starts here, and since when.

        Codex starts a program before it reports it, but after the end of the previous item.
        """
        try:
            if note.method == protocol.TERMINAL_INPUT:
                return self._typed(msgspec.json.decode(note.params, type=DeltaNotification))
            if note.method != protocol.ITEM_STARTED:
                return None
            found = msgspec.json.decode(note.params, type=ItemNotification)
        except JSON_ERRORS:
            return None
        if found.item.type not in {"commandExecution", "fileChange", *protocol.AGENT_ITEMS}:
            return None
        reported = found.started_at_ms / 1000
        return found.item, max(reported - MAX_START_DELAY, self._last_time) if reported else None

    def _typed(self, note: DeltaNotification) -> tuple[ThreadItem, float | None] | None:
        """Return input to a program of an earlier turn, which is no longer watched."""
        if note.item_id in self._running:
            return None
        item = ThreadItem(type="commandExecution", id=note.item_id, command=note.stdin)
        return item, self._last_time or None

    def watch_command(self, item: str, running: WatchedCommand) -> None:
        """The command of an item has started; codex may read its output long before its end."""
        unsandboxed = not self._unsandboxed.isdisjoint({item, ALL_ITEMS})
        if self.has_untrusted_text or unsandboxed:
            running.start_recording()
        self.has_untrusted_text |= running.shown or unsandboxed
        self._running[item] = running

    def allow_unsandboxed(self, item: str) -> None:
        """Allow the command of an item, or of `ALL_ITEMS`, to leave the sandbox."""
        self._unsandboxed.add(item)
        found = [command for key, command in self._running.items() if item in {key, ALL_ITEMS}]
        for running in found if self.has_untrusted_text else ():
            running.start_recording()
        self.has_untrusted_text |= bool(found)

    @property
    def unread_steering(self) -> tuple[User, ...]:
        return tuple(self._steered.values())

    def feed(self, note: RpcMessage) -> list[RuntimeEvent]:
        """Never raises: an unreadable notification is ignored, but counts as untrusted."""
        try:
            return self._feed(note)
        except JSON_ERRORS:
            self.has_untrusted_text |= note.method == protocol.ITEM_COMPLETED
            return []

    def _feed(self, note: RpcMessage) -> list[RuntimeEvent]:
        if note.method in protocol.DELTAS:
            delta = msgspec.json.decode(note.params, type=DeltaNotification)
            return self._delta(note.method, delta)
        handle = self._handlers.get(note.method)
        return handle(note.params) if handle is not None else []

    def _delta(self, method: str, note: DeltaNotification) -> list[RuntimeEvent]:
        self.tool_ended = False
        match method:
            case protocol.TEXT_DELTA:
                self._partial[note.item_id] = self._partial.get(note.item_id, "") + note.delta
                return [TextDelta(note.delta)]
            case protocol.OUTPUT_DELTA | protocol.MCP_PROGRESS:
                found, text = self._open.get(note.item_id), note.delta or note.message
                if found is None or not found.emitted or not text:
                    return []
                return [ToolProgress(found.call.id, text)]
            case _:
                return [ReasoningDelta(note.delta)]

    def _on_item_started(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ItemNotification)
        item, self._last_time = note.item, max(self._last_time, note.started_at_ms / 1000)
        self.tool_ended = False
        if item.type == "fileChange":
            self.changes[item.id] = item
        work = call_of_item(item)
        if work is None or item.id in self._open:
            return []
        self._open[item.id] = _OpenCall(work, untrusted=outcome_of_item(item).untrusted)
        return self._open_events()

    def _on_item_completed(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ItemNotification)
        item, self._last_time = note.item, max(self._last_time, note.completed_at_ms / 1000)
        self.tool_ended = False
        match item.type:
            case "agentMessage":
                return self._on_agent_message(item)
            case "reasoning":
                self._thoughts.append(reasoning_text(item))
                return []
            case "userMessage":
                return self._on_user_message(item)
            case "contextCompaction":
                return [Notice("Codex compacted this conversation.")]
            case _:
                return self._end_call(item)

    def _end_call(self, item: ThreadItem) -> list[RuntimeEvent]:
        work = call_of_item(item)
        self.tool_ended = work is not None or item.type == "dynamicToolCall"
        if work is None:
            shown = item.type in protocol.ITEM_TYPES - _SILENT_ITEMS
            return [Notice(f"Codex: {item.type}.")] if shown else []
        self.iterations += 1
        outcome = outcome_of_item(item)
        if item.type == "commandExecution" and item.id not in self._open:
            # It started in an earlier turn, so what it read meanwhile is unknown.
            outcome = structs.replace(outcome, untrusted=True)
        found = self._open.setdefault(item.id, _OpenCall(work, untrusted=outcome.untrusted))
        found.outcome = self._with_trust(item.id, outcome)
        if item.type not in protocol.AGENT_ITEMS and (running := self._running.pop(item.id, None)):
            running.end()
        self.has_untrusted_text |= found.outcome.untrusted
        return self._open_events()

    def _with_trust(self, item: str, outcome: CallOutcome) -> CallOutcome:
        running = self._running.get(item)
        shown = item in self._unsandboxed
        if running is not None:
            shown |= running.shown or ALL_ITEMS in self._unsandboxed
        unverified = running is not None and running.unverified
        return structs.replace(outcome, untrusted=outcome.untrusted or shown, unverified=unverified)

    def _open_events(self) -> list[RuntimeEvent]:
        """Return the calls in the order in which they started, each with its result."""
        events: list[RuntimeEvent] = []
        for key, open_call in list(self._open.items()):
            if not open_call.emitted:
                open_call.emitted = True
                work = open_call.call
                call = ToolCall(work.id, work.name, work.args)
                events += [self._message((call,), Stop.TOOLS), ToolStarted(call, work.effect)]
            if open_call.outcome is None:
                break
            events.append(self._result(open_call.call, open_call.outcome))
            del self._open[key]
        return events

    def _result(self, work: CodexCall, outcome: CallOutcome) -> MessageAdded:
        self.last_message = new_id("msg")
        result = Result(
            self.last_message,
            work.id,
            (Text(outcome.text),),
            outcome.failed,
            outcome.shown,
            outcome.untrusted,
            outcome.unverified,
        )
        return MessageAdded(result)

    def _on_agent_message(self, item: ThreadItem) -> list[RuntimeEvent]:
        self._partial.pop(item.id, None)
        text = item.text or ""
        if (end := abort_position(text)) is not None:
            self.aborted = True
            text = text[:end]
        events = self.flush()
        if text.strip():
            self._text = text
            self.answered = True
        return events

    def _on_user_message(self, item: ThreadItem) -> list[RuntimeEvent]:
        message = self._steered.pop(item.client_id or "", None)
        if message is None:
            return []
        events = self._close_partial(Stop.END)
        self.last_message = message.id
        return [*events, MessageAdded(message)]

    def _on_terminal_input(self, params: Raw) -> list[RuntimeEvent]:
        """Input to a running program; what it causes is not reported."""
        note = msgspec.json.decode(params, type=DeltaNotification)
        if note.stdin or note.item_id not in self._open:
            self.allow_unsandboxed(note.item_id)
            self.has_untrusted_text = True
        return []

    def _on_usage(self, params: Raw) -> list[RuntimeEvent]:
        self.usage_meter.feed(params, self.turn)
        return []

    def _on_plan(self, params: Raw) -> list[RuntimeEvent]:
        text = msgspec.json.decode(params, type=PlanNotification).description
        return [Notice(text)] if text else []

    def _on_diff(self, params: Raw) -> list[RuntimeEvent]:
        text = msgspec.json.decode(params, type=DiffNotification).description
        if not text or text == self._shown_diff:
            return []
        self._shown_diff = text
        return [Notice(text)]

    def _on_error(self, params: Raw) -> list[RuntimeEvent]:
        note = msgspec.json.decode(params, type=ErrorNotification)
        text = note.error.message or note.message
        if note.error.message:
            self.last_error = note.error
        return [Notice(f"Codex: {one_line(text, 300)}")] if text else []

    def _on_turn_started(self, params: Raw) -> list[RuntimeEvent]:
        """Take the id of a turn that was not started by its own request, such as a compaction."""
        self.turn = self.turn or msgspec.json.decode(params, type=TurnNotification).turn.id
        return []

    def _on_turn_completed(self, params: Raw) -> list[RuntimeEvent]:
        end = msgspec.json.decode(params, type=TurnNotification).turn
        if not (self.turn and end.id) or end.id == self.turn:
            self.end = end
        return []

    def flush(self) -> list[RuntimeEvent]:
        """Return the text that was not emitted yet."""
        return [self._message((), Stop.END)] if self._text else []

    def close(self) -> list[RuntimeEvent]:
        """End the turn: close what is open, and keep a partial answer."""
        cut = self.end is None or self.end.status != "completed"
        for key, call in self._open.items():
            if call.outcome is None:
                outcome = CallOutcome(OUTCOME_UNKNOWN, failed=True, untrusted=call.untrusted)
                call.outcome = self._with_trust(key, outcome)
        for running in self._running.values():
            running.end()
        self._running.clear()
        stop = Stop.CANCELLED if cut else Stop.END
        return [*self._open_events(), *self._close_partial(stop)]

    def _close_partial(self, stop: Stop) -> list[RuntimeEvent]:
        """Codex never completes an interrupted answer, whether by steering or at the end."""
        events = self.flush()
        known = self.last_message
        partial = "".join(self._partial.values())
        self._partial.clear()
        if partial.strip():
            self._text = partial
            events.append(self._message((), stop))
            if stop is Stop.CANCELLED:
                self.last_message = known
        return events

    def _message(self, calls: tuple[ToolCall, ...], stop: Stop) -> MessageAdded:
        thoughts = tuple(Reasoning(text) for text in self._thoughts if text.strip())
        text = (Text(self._text),) if self._text else ()
        parts, usage = (*thoughts, *text, *calls), self.usage_meter.take()
        message = Assistant(new_id("msg"), parts, stop, usage, self._model, self._provider)
        self._thoughts, self._text = [], ""
        self.last_message = message.id
        return MessageAdded(message)
