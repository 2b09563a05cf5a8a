"""What a run tells, in the words of the API: one JSON object for each event."""

from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.api.answer_text import AnswerTextStream, assistant_text, reasoning_of
from hermes.api.run_log import RunLog
from hermes.kit.clock import Clock
from hermes.kit.text import one_line
from hermes.ports.journal import RunRecord, RunStatus
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
    Usage,
    User,
    text_of,
)
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind

MAX_PREVIEW = 200
INTERRUPTED_CODE = "interrupted"
INTERRUPTED_MESSAGE = "The gateway ended while this run was going on."


class RunUsage(Struct, frozen=True):
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


class RunResult(Struct, frozen=True, omit_defaults=True):
    """What a run came to; `partial` says that it ended before it was done."""

    output: str = ""
    usage: RunUsage = RunUsage()
    error: str = ""
    error_code: str = ""
    partial: bool = False
    unheard: tuple[str, ...] = ()


class RunEventObject(Struct, frozen=True, kw_only=True):
    """Only those fields are there that the event's name calls for.

    `unheard` is what was sent to steer the run and came too late for it.
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
        output=result.output,
        usage=result.usage,
        error=result.error or UNSET,
        error_code=result.error_code or UNSET,
        partial=result.partial or UNSET,
    )


def run_usage(usage: Usage) -> RunUsage:
    return RunUsage(usage.input, usage.output, usage.input + usage.output)


def run_end(event: RunEnded, output: str) -> tuple[str, RunStatus, RunResult]:
    """A turn that ended early says so, also when it is not a failure."""
    done = event.outcome is Outcome.DONE
    result = RunResult(
        output=output,
        usage=run_usage(event.usage),
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
    """Puts one run's events into its log; give it to the turn as listener and as closing."""

    def __init__(self, log: RunLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._calls: dict[str, tuple[ToolCall, float]] = {}
        self._closing: Sequence[Write] | None = None
        self._stream = AnswerTextStream()
        self._steered: set[str] = set()
        self._heard: set[str] = set()
        self._asked: dict[str, Question] = {}
        self.waiting: list[User] = []
        self.stopping = False
        self.last: tuple[str, dict[str, object]] = ("", {})
        """The name of the last event, and what is told of the run's end elsewhere."""

    @property
    def closed(self) -> bool:
        """Whether the last word is said: nothing more is heard then."""
        return self._closing is not None

    @property
    def asking(self) -> bool:
        """Whether the run waits for a person."""
        return bool(self._asked)

    @property
    def steering(self) -> list[str]:
        """Of all that was said to steer the run."""
        return [*self._steered, *(user.id for user in self.waiting)]

    async def steer(self) -> Sequence[User]:
        heard, self.waiting = self.waiting, []
        self._steered.update(user.id for user in heard)
        return heard

    async def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._log.begin(RunStatus.RUNNING)
            case MessageAdded(message=message):
                await self._said(message)
            case ToolStarted(call=call):
                self._calls[call.id] = (call, self._clock.monotonic())
                await self._fact(
                    "tool.started",
                    tool=call.name,
                    tool_call_id=call.id,
                    preview=one_line(bytes(call.args).decode("utf-8", "replace"), MAX_PREVIEW),
                )
            case QuestionAsked(question=question):
                self._asked[question.id] = question
                await self._fact(f"{question.kind}.request", **_question_fields(question))
            case QuestionAnswered(question=identity, answer=answer):
                question = self._asked.pop(identity, None)
                kind = question.kind if question else QuestionKind.APPROVAL
                told = {"question_id": identity, "choice": answer, "resolved": bool(answer)}
                await self._fact(f"{kind}.responded", **told)
            case RunEnded():
                if self._closing is None:
                    self.closing(event, ())
            case _:
                await self._delta(event)

    def closing(self, ended: RunEnded, said: Sequence[Message]) -> Sequence[Write]:
        if ended.outcome is Outcome.CANCELLED and not self.stopping:
            # Nobody asked for it: the process is about to end.
            ended = msgspec.structs.replace(
                ended, outcome=Outcome.FAILED, reason=INTERRUPTED_MESSAGE, code=INTERRUPTED_CODE
            )
        name, status, result = run_end(ended, assistant_text(said))
        unheard = tuple(text_of(user) for user in self.waiting)
        result = msgspec.structs.replace(result, unheard=unheard)
        last = said[-1] if said else None
        # The last answer is written with the end, and we are told of it only after that.
        events = list(self._spoken(last)) if isinstance(last, Assistant) else []
        told = _end_fields(name, result)
        self.last = (name, {"run_id": self._log.run, "status": status, **told})
        events.append((name, told))
        bodies = [(name, self._encoded(name, **fields)) for name, fields in events]
        self._closing = self._log.closing(status, msgspec.json.encode(result), bodies)
        return self._closing

    async def finish(self) -> bool:
        """Tell the end, once the session is free for whoever hears of it; False without an end."""
        if self._closing is None:
            return False
        await self._log.finish(self._closing)
        return True

    async def _said(self, message: Message) -> None:
        match message:
            case User():
                if message.id in self._steered:
                    await self._tell("steer.applied", text=text_of(message))
            case Assistant():
                # The transcript holds it already, so nobody waits for the journal as well.
                for name, fields in self._spoken(message):
                    await self._tell(name, **fields)
            case Result(call=identity, failed=failed):
                call, began = self._calls.pop(identity, (None, self._clock.monotonic()))
                await self._fact(
                    "tool.completed",
                    tool=call.name if call else "",
                    tool_call_id=identity,
                    duration=round(self._clock.monotonic() - began, 3),
                    error=failed,
                )
            case _:
                assert_never(message)

    def _spoken(self, message: Assistant) -> Iterator[tuple[str, dict[str, object]]]:
        """What is told of an answer, once."""
        if message.id in self._heard:
            return
        self._heard.add(message.id)
        if thought := reasoning_of(message):
            yield "reasoning.available", {"text": thought}
        if rest := self._stream.said(message):
            yield "message.delta", {"delta": rest}
        yield from self._renewed()
        if message.text:
            yield "message.completed", {"text": message.text}

    def _renewed(self) -> Iterator[tuple[str, dict[str, object]]]:
        """The model broke off and answers differently: of all words so far, these stay."""
        if anew := self._stream.renewed():
            yield "message.restarted", {"text": anew[0]}
            if anew[1]:
                yield "message.delta", {"delta": anew[1]}

    async def _delta(self, event: Delta) -> None:
        match event:
            case TextDelta(text=text):
                if more := self._stream.delta(text):
                    await self._tell("message.delta", delta=more)
                elif self._stream.broken:
                    for name, fields in self._renewed():
                        await self._tell(name, **fields)
            case ReasoningDelta(text=text):
                await self._tell("reasoning.delta", delta=text)
            case StreamReset():
                self._stream.reset()
            case Notice(text=text):
                await self._tell("run.notice", text=text)
            case ToolProgress(call=call, text=text):
                await self._tell("tool.progress", tool_call_id=call, text=text)
            case _:
                assert_never(event)

    async def _fact(self, event: str, /, **fields: object) -> None:
        await self._log.fact(event, self._encoded(event, **fields))

    async def _tell(self, event: str, /, **fields: object) -> None:
        await self._log.delta(event, self._encoded(event, **fields))

    def _encoded(self, event: str, /, **fields: object) -> bytes:
        now = self._clock.now().timestamp()
        plain = RunEventObject(event=event, run_id=self._log.run, timestamp=now)
        return msgspec.json.encode(msgspec.structs.replace(plain, **fields))


def _question_fields(question: Question) -> dict[str, object]:
    """What a person must see to decide; the command is shown exactly as it is."""
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
    if name == "run.completed" or result.output:
        fields["output"] = result.output
    if result.partial or (name == "run.completed" and result.error):
        fields["partial"] = True
    if result.error and name != "run.cancelled":
        fields |= {"error": result.error, "error_code": result.error_code}
    if result.unheard:
        fields["unheard"] = result.unheard
    return fields


def interruption_event(record: RunRecord, clock: Clock) -> tuple[str, bytes, bytes]:
    """Name, event and result for a run that its process did not live to end."""
    name, code = "run.failed", INTERRUPTED_CODE
    event = RunEventObject(
        event=name,
        run_id=record.run,
        timestamp=clock.now().timestamp(),
        error=INTERRUPTED_MESSAGE,
        error_code=code,
    )
    result = RunResult(error=INTERRUPTED_MESSAGE, error_code=code, partial=True)
    return name, msgspec.json.encode(event), msgspec.json.encode(result)


def event_frame(seq: int, body: Raw) -> bytes:
    """One event as it goes over the wire; its number is what a reader comes back with."""
    return b"id: %d\ndata: %b\n\n" % (seq, bytes(body))
