"""Write a run's events to its log, one JSON object per event, and describe its final state."""

from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.api.answer_text import AnswerTextStream, assistant_text, reasoning_of
from hermes.api.chat_objects import ServedBy
from hermes.api.run_log import INTERRUPTED_GAP, RunLog
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.journal import AppendRunEvents, RunEvent, RunRecord, RunStatus
from hermes.ports.store import Write
from hermes.schema.events import (
    Delta,
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
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    ToolCall,
    User,
    text_of,
)
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.session.turn_request import SteeringQueue

MAX_PREVIEW = 200
INTERRUPTED_EVENT = "run.failed"
INTERRUPTED_CODE = "interrupted"
INTERRUPTED_MESSAGE = "The gateway stopped while this run was in progress."


class RunUsage(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class RunResult(Struct, frozen=True, omit_defaults=True):
    """The result of a run; `partial` means it ended early."""

    output: str = ""
    served_by: ServedBy = ServedBy()
    usage: RunUsage = RunUsage()
    error: str = ""
    error_code: str = ""
    partial: bool = False
    unheard: tuple[str, ...] = ()


class RunEventObject(Struct, frozen=True, kw_only=True):
    """One run event; which fields are present depends on `event`.

    `unheard` lists steering messages that arrived too late for the run.
    """

    event: str
    run_id: str
    timestamp: float
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    tool: str | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    duration: float | UnsetType = UNSET
    output: str | UnsetType = UNSET
    served_by: ServedBy | UnsetType = UNSET
    usage: RunUsage | UnsetType = UNSET
    partial: bool | UnsetType = UNSET
    error: str | bool | UnsetType = UNSET
    error_code: str | UnsetType = UNSET
    unheard: tuple[str, ...] | UnsetType = UNSET
    question_id: str | UnsetType = UNSET
    command: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    choices: tuple[str, ...] | UnsetType = UNSET
    allow_permanent: bool | UnsetType = UNSET
    until: float | UnsetType = UNSET
    choice: str | UnsetType = UNSET
    resolved: bool | UnsetType = UNSET


class RunState(Struct, frozen=True, kw_only=True):
    object: str = "hermes.run"
    run_id: str
    status: RunStatus
    created_at: float
    updated_at: float
    session_id: str
    model: str
    last_event: str | None
    last_event_id: int
    served_by: ServedBy | UnsetType = UNSET
    output: str | UnsetType = UNSET
    usage: RunUsage | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_code: str | UnsetType = UNSET
    partial: bool | UnsetType = UNSET


def run_state(record: RunRecord) -> RunState:
    state = RunState(
        run_id=record.run,
        status=record.status,
        created_at=record.created.timestamp(),
        updated_at=record.updated.timestamp(),
        session_id=record.session,
        model=record.model,
        last_event=record.last_event or None,
        last_event_id=record.last_seq,
    )
    if record.result is None:
        return state
    result = msgspec.json.decode(record.result, type=RunResult)
    return msgspec.structs.replace(
        state,
        served_by=result.served_by if result.served_by.model else UNSET,
        output=result.output,
        usage=result.usage,
        error=result.error or UNSET,
        error_code=result.error_code or UNSET,
        partial=result.partial or UNSET,
    )


def run_end(event: RunEnded, output: str) -> tuple[str, RunStatus, RunResult]:
    """Return event name, status and result; an early end is reported even if not a failure."""
    done, usage = event.outcome is Outcome.DONE, event.usage
    result = RunResult(
        output=output,
        usage=RunUsage(usage.input, usage.output, usage.input + usage.output),
        error="" if done else event.reason,
        error_code="" if done else event.code,
        partial=not done and bool(output),
    )
    match event.outcome:
        case Outcome.DONE | Outcome.EXHAUSTED:
            return "run.completed", RunStatus.COMPLETED, result
        case Outcome.FAILED:
            return "run.failed", RunStatus.FAILED, result
        case Outcome.CANCELLED:
            return "run.cancelled", RunStatus.CANCELLED, result
        case _:
            assert_never(event.outcome)


class RunEventWriter:
    """Adds one run's events to its log, and the end to the turn's final writes."""

    def __init__(self, log: RunLog, clock: Clock, steering: SteeringQueue) -> None:
        self._log = log
        self._clock = clock
        self._steering = steering
        self._calls: dict[str, tuple[ToolCall, float]] = {}
        self._closing: Sequence[Write] | None = None
        self._stream = AnswerTextStream()
        self._seen_answers: set[str] = set()
        self._open_questions: dict[str, Question] = {}
        self.stopping = False
        self.end_event: tuple[str, dict[str, object]] = ("", {})
        """The end event's name, and the fields reported to callbacks."""

    @property
    def closed(self) -> bool:
        """Whether the run has ended; no further events are recorded."""
        return self._closing is not None

    @property
    def has_question(self) -> bool:
        """Whether the run has a pending question for a person."""
        return bool(self._open_questions)

    def on_event(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._log.set_status(RunStatus.RUNNING)
            case MessageAdded(message=message):
                self._on_message(message)
            case ToolStarted(call=call):
                self._calls[call.id] = (call, self._clock.monotonic())
                self._add_fact(
                    "tool.started",
                    tool=call.name,
                    tool_call_id=call.id,
                    preview=one_line(bytes(call.args).decode("utf-8", "replace"), MAX_PREVIEW),
                )
            case QuestionAsked(question=question):
                self._open_questions[question.id] = question
                self._add_fact(f"{question.kind}.request", **_question_fields(question))
            case QuestionAnswered(question=question_id, answer=answer):
                question = self._open_questions.pop(question_id, None)
                kind = question.kind if question else QuestionKind.APPROVAL
                fields = {"question_id": question_id, "choice": answer, "resolved": bool(answer)}
                self._add_fact(f"{kind}.responded", **fields)
            case RunEnded():
                if self._closing is None:
                    self.final_writes(event, ())
            case _:
                self._on_delta(event)

    def final_writes(self, ended: RunEnded, messages: Sequence[Message]) -> Sequence[Write]:
        if ended.outcome is Outcome.CANCELLED and not self.stopping:
            # Not requested by the user: the process is shutting down.
            ended = msgspec.structs.replace(
                ended, outcome=Outcome.FAILED, reason=INTERRUPTED_MESSAGE, code=INTERRUPTED_CODE
            )
        name, status, result = run_end(ended, assistant_text(messages))
        unheard = tuple(text_of(user) for user in self._steering.waiting)
        served_by = ServedBy.of(messages)
        result = msgspec.structs.replace(result, unheard=unheard, served_by=served_by)
        last = messages[-1] if messages else None
        # The last answer is stored with the end, before its event arrives here.
        events = list(self._answer_events(last)) if isinstance(last, Assistant) else []
        end_fields = _end_fields(name, result)
        self.end_event = (name, {"run_id": self._log.run, "status": status, **end_fields})
        events.append((name, end_fields))
        bodies = [(name, self._encode(name, **fields)) for name, fields in events]
        self._closing = self._log.final_writes(status, msgspec.json.encode(result), bodies)
        return self._closing

    async def finish(self) -> bool:
        """Publish the end, once the session is free; return False if there is none."""
        if self._closing is None:
            return False
        await self._log.finish(self._closing)
        return True

    def _on_message(self, message: Message) -> None:
        match message:
            case User():
                if self._steering.was_taken(message):
                    self._add_delta("steer.applied", text=text_of(message))
            case Assistant():
                # The transcript has it already, so there is no need to wait for the journal.
                for name, fields in self._answer_events(message):
                    self._add_delta(name, **fields)
            case Result(call=call_id, failed=failed):
                call, began = self._calls.pop(call_id, (None, self._clock.monotonic()))
                self._add_fact(
                    "tool.completed",
                    tool=call.name if call else "",
                    tool_call_id=call_id,
                    duration=round(self._clock.monotonic() - began, 3),
                    error=failed,
                )
            case _:
                assert_never(message)

    def _answer_events(self, message: Assistant) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the events of an answer, once."""
        if message.id in self._seen_answers:
            return
        self._seen_answers.add(message.id)
        if reasoning := reasoning_of(message):
            yield "reasoning.available", {"text": reasoning}
        if rest := self._stream.finish(message):
            yield "message.delta", {"delta": rest}
        yield from self._restart_events()
        if message.text:
            yield "message.completed", {"text": message.text}

    def _restart_events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """The model restarted with a different answer: yield the text that stays, then the new."""
        if diverged := self._stream.take_divergence():
            yield "message.restarted", {"text": diverged[0]}
            if diverged[1]:
                yield "message.delta", {"delta": diverged[1]}

    def _on_delta(self, event: Delta) -> None:
        match event:
            case TextDelta(text=text):
                if more := self._stream.delta(text):
                    self._add_delta("message.delta", delta=more)
                elif self._stream.diverged:
                    for name, fields in self._restart_events():
                        self._add_delta(name, **fields)
            case ReasoningDelta(text=text):
                self._add_delta("reasoning.delta", delta=text)
            case StreamReset():
                self._stream.reset()
            case Notice(text=text):
                self._add_delta("run.notice", text=text)
            case ToolProgress(call=call, text=text):
                self._add_delta("tool.progress", tool_call_id=call, text=text)
            case _:
                assert_never(event)

    def _add_fact(self, event: str, /, **fields: object) -> None:
        self._log.add_fact(event, self._encode(event, **fields))

    def _add_delta(self, event: str, /, **fields: object) -> None:
        self._log.add_delta(event, self._encode(event, **fields))

    def _encode(self, event: str, /, **fields: object) -> bytes:
        now = self._clock.now().timestamp()
        event_object = RunEventObject(event=event, run_id=self._log.run, timestamp=now)
        return msgspec.json.encode(msgspec.structs.replace(event_object, **fields))


def _question_fields(question: Question) -> dict[str, object]:
    """Return what a person needs to decide; the command is shown verbatim."""
    return {
        "question_id": question.id,
        "command": question.subject,
        "description": question.text,
        "reason": question.reason,
        "origin": question.origin,
        "choices": question.choices,
        "allow_permanent": ApprovalChoice.ALWAYS in question.choices,
        "until": question.until.timestamp(),
    }


def _end_fields(name: str, result: RunResult) -> dict[str, object]:
    fields: dict[str, object] = {"usage": result.usage}
    if result.served_by.model:
        fields["served_by"] = result.served_by
    if name == "run.completed" or result.output:
        fields["output"] = result.output
    if result.partial or (name == "run.completed" and result.error):
        fields["partial"] = True
    if result.error and name != "run.cancelled":
        fields |= {"error": result.error, "error_code": result.error_code}
    if result.unheard:
        fields["unheard"] = result.unheard
    return fields


def interrupted_end(record: RunRecord, clock: Clock) -> AppendRunEvents:
    """Return the end of a run whose process died."""
    now, message, code = clock.now(), INTERRUPTED_MESSAGE, INTERRUPTED_CODE
    event = RunEventObject(
        event=INTERRUPTED_EVENT,
        run_id=record.run,
        timestamp=now.timestamp(),
        error=message,
        error_code=code,
    )
    result = RunResult(error=message, error_code=code, partial=True)
    return AppendRunEvents(
        run=record.run,
        at=now,
        events=(RunEvent(record.last_seq + INTERRUPTED_GAP, Raw(msgspec.json.encode(event))),),
        status=RunStatus.FAILED,
        last_event=INTERRUPTED_EVENT,
        result=Raw(msgspec.json.encode(result)),
    )


def event_frame(seq: int, body: Raw) -> bytes:
    """Encode one event for the stream; clients resume with its number."""
    return b"id: %d\ndata: %b\n\n" % (seq, bytes(body))
