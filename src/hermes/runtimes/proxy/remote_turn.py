"""One turn as a run of the far gateway: begun once, followed over a link that may break."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.tasks import background_tasks
from hermes.ports.approvals import ApprovalRequest, Approvals, Isolation, TurnSuspended
from hermes.ports.blobs import Blobs
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.runtimes.proxy.attachments import MessageEncoder
from hermes.runtimes.proxy.capabilities import UNSUPPORTED_STATUSES, RemoteCapabilities
from hermes.runtimes.proxy.chat_protocol import AnswerTooLong, is_program_note, remote_session_id
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.errors import (
    quote,
    roles_unsupported,
    run_interrupted,
    run_unknown,
    stream_broken,
    turn_timed_out,
)
from hermes.runtimes.proxy.followups import RemoteFollowups
from hermes.runtimes.proxy.gateway_client import (
    RUNS_PATH,
    GatewayClient,
    LinkBroken,
    RequestRefused,
    RetryTimer,
)
from hermes.runtimes.proxy.run_protocol import (
    COMPLETED,
    AcceptedRun,
    ApprovalBody,
    ClarifyBody,
    RemoteEvent,
    RemoteQuestion,
    RemoteRunState,
    RunEventMapper,
    SteeringTracker,
    input_message,
    run_body,
    run_key,
)
from hermes.schema.errors import ModelError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Notice,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
)
from hermes.schema.messages import Stop, User
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Role

log = logging.getLogger(__name__)

STEERING_INTERVAL = 0.25
"""Seconds between two looks at what people said meanwhile."""
INTERRUPTED_CODE = "interrupted"
REMOTE_TOOL = "the far gateway"
MAX_OPEN_QUESTIONS = 8
"""Questions of the far side that are before people at once; whatever it asks else is refused."""
Body = TypeVar("Body", AcceptedRun, RemoteRunState)


class RunsUnsupported(Exception):
    """Who said that it takes runs knows nothing of them: somebody else may be there now."""

    def __init__(self, refusal: ModelError) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class RemoteTurnDeps(Struct, frozen=True, kw_only=True):
    """What all turns share. `counsel` asks people what the far side wants to know."""

    far: RemoteGateway
    clock: Clock
    blobs: Blobs
    counsel: Approvals | None = None
    afterwards: RemoteFollowups | None = None


class RemoteTurn:
    def __init__(
        self,
        parts: RemoteTurnDeps,
        able: RemoteCapabilities,
        runtime_request: RuntimeRequest,
        tell: EmitRuntimeEvent,
    ) -> None:
        self._parts = parts
        self._far = parts.far
        self._able = able
        self._runtime_request = runtime_request
        self._tell = tell
        self._line = GatewayClient(parts.far, parts.clock)
        self._mapper = RunEventMapper()
        self._steered = SteeringTracker()
        self._body = b""
        self._name = ""
        self._run = ""
        self._asking: dict[str, anyio.CancelScope] = {}
        self._may_be_running = False
        """Whether a run may go on there: it was asked for, and not refused."""

    async def run(self) -> TurnEnd:
        async with self._line:
            try:
                await self._run_with_deadline()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                    await self._record_partial()
                raise
        return await self._ending()

    async def _run_with_deadline(self) -> None:
        with anyio.move_on_after(self._far.total or None) as limit:
            await self._begin()
            await self._follow_and_steer()
        if limit.cancelled_caught:
            raise turn_timed_out(self._far.total)

    async def _begin(self) -> None:
        packer = MessageEncoder(self._parts.blobs, files=self._able.files)
        begin, behind = await run_body(self._runtime_request, packer, later=self._is_followed)
        if begin.role is not Role.OWNER and not self._able.roles:
            raise roles_unsupported()
        for name in behind:
            await self._tell(Notice(f"{name} cannot be passed on to the far gateway."))
        self._body = msgspec.json.encode(begin)
        names = self._names()
        for number, name in enumerate(names, 1):
            self._name = name
            self._run = await self._post()
            last = number == len(names)
            if last or (await self._state()).status != "cancelled":
                break
        if self._is_followed and (afterwards := self._parts.afterwards) is not None:
            scope = self._runtime_request.scope
            known = afterwards.knows(remote_session_id(scope))
            await afterwards.begun(scope, 0.0 if known else (await self._state()).created_at)

    @property
    def _is_followed(self) -> bool:
        return self._able.sessions and self._parts.afterwards is not None

    def _names(self) -> Sequence[str]:
        """The one name of the question; after it those for each time that it was taken up again.

        A run that was stopped when this gateway was, is not waited for: the next name begins
        another one, and finds it again, should this gateway be killed once more.
        """
        name = run_key(self._runtime_request, self._body)
        names = [name]
        for message in reversed(self._runtime_request.messages):
            if not is_program_note(message):
                break
            names.insert(1, f"{name}-{message.id}")
        return names

    async def _post(self) -> str:
        """Asking twice by one name is asking once."""
        self._may_be_running = True
        try:
            given = await self._line.call_with_retries(
                "POST",
                RUNS_PATH,
                self._body,
                Idempotency_Key=self._name,
                X_Hermes_Session_Id=remote_session_id(self._runtime_request.scope),
            )
        except ModelError as error:
            if isinstance(error.__cause__, RequestRefused):
                self._may_be_running = False
                if error.__cause__.status in UNSUPPORTED_STATUSES:
                    raise RunsUnsupported(error) from error
            raise
        return _decode_body(given, AcceptedRun).run_id

    async def _state(self) -> RemoteRunState:
        return _decode_body(
            await self._line.call_with_retries("GET", f"{RUNS_PATH}/{self._run}"), RemoteRunState
        )

    async def _follow_and_steer(self) -> None:
        """Listen to the end, and pass on meanwhile what people say."""
        async with background_tasks() as group:
            if self._able.steers:
                group.start_soon(self._forward_steering)
            await self._follow(group)

    async def _follow(self, group: TaskGroup) -> None:
        patience = RetryTimer(self._far, self._parts.clock)
        told = False
        while self._mapper.end is None:
            try:
                await self._listen(patience, group)
                if self._mapper.end is None:
                    await self._check_ended(patience)
            except RequestRefused as error:
                if error.status == 404:
                    raise run_unknown() from error
                await patience.wait(error)
            except LinkBroken as error:
                if not told:
                    told = True
                    await self._tell(Notice("The line to the far gateway broke; it is taken up."))
                await patience.wait(error)

    async def _listen(self, patience: RetryTimer, group: TaskGroup) -> None:
        """Until the far side closes, or the link breaks."""
        mapper = self._mapper
        async with aclosing(self._line.events(self._run, mapper.last)) as events:
            async for event in events:
                if not event.id.isdecimal():
                    continue
                try:
                    heard = mapper.feed(int(event.id), event.data)
                except (msgspec.DecodeError, RecursionError, AnswerTooLong) as error:
                    raise stream_broken(f"the far gateway sent a broken stream: {error}") from error
                patience.calm()
                for one in heard:
                    await self._tell(one)
                self._steered.applied(mapper.applied)
                mapper.applied.clear()
                self._forward_questions(group)
                if mapper.end is not None:
                    return

    async def _check_ended(self, patience: RetryTimer) -> None:
        """The stream was closed without one: its events may be gone, not what it came to."""
        state = await self._state()
        if state.end:
            for one in self._mapper.close(state):
                await self._tell(one)
        else:
            await patience.wait(LinkBroken(ConnectionError("the far gateway closed the stream")))

    async def _forward_steering(self) -> None:
        while True:
            await self._parts.clock.sleep(STEERING_INTERVAL)
            said = await self._runtime_request.meanwhile()
            # Whatever becomes of it now, it is answered: by this run or by the next.
            for message in said:
                self._steered.gave(message)
            for message in said:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        packed = await MessageEncoder(self._parts.blobs, files=self._able.files).pack(message)
        body = msgspec.json.encode({"input": [input_message(packed)]})
        path = f"{RUNS_PATH}/{self._run}/steer"
        try:
            await self._line.call_with_retries("POST", path, body, Idempotency_Key=message.id)
        except ModelError as error:
            log.info("the far gateway was not told what was said meanwhile: %s", error)

    def _forward_questions(self, group: TaskGroup) -> None:
        """What is answered there, or was before we came back, is asked of nobody here."""
        mapper, counsel = self._mapper, self._parts.counsel
        for leave in mapper.leave:
            if counsel is None or leave.question in self._asking:
                continue
            if len(self._asking) >= MAX_OPEN_QUESTIONS:
                group.start_soon(self._refuse, leave)
                continue
            scope = self._asking[leave.question] = anyio.CancelScope()
            group.start_soon(self._ask_people, counsel, leave, scope)
        for question in mapper.settled:
            if question in self._asking:
                self._asking[question].cancel()
        mapper.leave.clear()
        mapper.settled.clear()

    async def _ask_people(
        self, counsel: Approvals, leave: RemoteQuestion, scope: anyio.CancelScope
    ) -> None:
        """Whoever does not answer leaves it to the far side, which does not wait for ever."""
        answer: ApprovalBody | ClarifyBody | None = None
        try:
            with scope:
                answer = await self._answer_to(counsel, leave)
        except TurnSuspended:
            log.info("a question of the far gateway is asked again after the next start")
        finally:
            del self._asking[leave.question]
        if answer is not None:
            await self._give(leave, answer)

    async def _refuse(self, leave: RemoteQuestion) -> None:
        """What is asked beyond the bound; words that nobody was asked for are not made up."""
        told = (
            f"{MAX_OPEN_QUESTIONS} questions of the far gateway wait already; one more was refused."
        )
        await self._tell(Notice(told))
        if not leave.open:
            await self._give(leave, ApprovalBody(ApprovalChoice.DENY.value, leave.question))

    async def _give(self, leave: RemoteQuestion, answer: ApprovalBody | ClarifyBody) -> None:
        path = "clarify" if leave.open else "approval"
        body = msgspec.json.encode(answer)
        try:
            await self._line.call_with_retries("POST", f"{RUNS_PATH}/{self._run}/{path}", body)
        except ModelError as error:
            # It may be in good order: an answer whose receipt was lost was heard all the same.
            log.info("an answer was not taken by the far gateway: %s", error)

    async def _answer_to(
        self, counsel: Approvals, leave: RemoteQuestion
    ) -> ApprovalBody | ClarifyBody | None:
        """Leave is asked for at our own door: who may give it here is for our rules to say."""
        # Found again at the far gateway, it is asked again.
        asked = structs.replace(self._runtime_request.scope, call=leave.question)
        if leave.open:
            words = await counsel.inquire(asked, leave.text, leave.choices, self._show)
            return ClarifyBody(words, leave.question) if words else None
        wish = ApprovalRequest(
            tool=REMOTE_TOOL, action=leave.action, reaching=Isolation.BEYOND, reason=leave.reason
        )
        decision = await counsel.rule(asked, wish, self._show)
        choice = ApprovalChoice.ONCE if decision.allowed else ApprovalChoice.DENY
        return ApprovalBody(choice.value, leave.question)

    async def _show(self, event: Event) -> None:
        if isinstance(event, QuestionAsked | QuestionAnswered):
            await self._tell(event)

    async def _stop(self) -> None:
        """Nobody waits for it any more; where it is not known whether it began, it is found out."""
        if self._mapper.end is not None or not self._may_be_running:
            return
        with anyio.move_on_after(self._far.grace) as limit:
            try:
                self._run = self._run or await self._post()
                await self._line.call_with_retries("POST", f"{RUNS_PATH}/{self._run}/stop")
            except ModelError as error:
                log.warning("the far gateway could not be told to stop: %s", error)
        if limit.cancelled_caught:
            log.warning("the far gateway could not be told to stop in time")

    async def _record_partial(self) -> None:
        for message in self._steered.heard:
            await self._tell(MessageAdded(message))
        if self._mapper.text.strip():
            await self._tell(MessageAdded(self._mapper.said(Stop.CANCELLED)))

    async def _ending(self) -> TurnEnd:
        end, mapper = self._mapper.end, self._mapper
        if end is None or end.event != COMPLETED:
            await self._record_partial()
            return _failed_end(end, self._far.key)
        if not mapper.text.strip():
            raise ModelError("⚠️ Proxy error: the answer is empty.", hint="Ask again.")
        # All at once and not before: a turn that is taken up again must find its question last.
        for message in self._steered.heard:
            await self._tell(MessageAdded(message))
        await self._tell(MessageAdded(mapper.said(Stop.END)))
        if end.partial or end.error:
            reason = end.error if isinstance(end.error, str) else "The answer ends here."
            return TurnEnd(Outcome.EXHAUSTED, quote(reason, self._far.key), end.error_code)
        return TurnEnd(Outcome.DONE, unheard=self._steered.unheard)


def _failed_end(end: RemoteEvent | None, key: str) -> TurnEnd:
    if end is None or end.event != "run.failed":
        # For whoever asked it is a failure: nobody here wanted it stopped.
        sentence = (
            "⚠️ Proxy error: the turn was stopped at the far gateway. Ask again to begin anew."
        )
        return TurnEnd(Outcome.FAILED, sentence, "cancelled")
    if end.error_code == INTERRUPTED_CODE:
        error = run_interrupted()
        return TurnEnd(Outcome.FAILED, error.sentence, end.error_code)
    why = quote(end.error, key) if isinstance(end.error, str) else ""
    sentence = f"⚠️ Proxy error: {why or 'the turn failed without a word why'}"
    return TurnEnd(Outcome.FAILED, sentence, end.error_code or ModelError.code)


def _decode_body(data: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise stream_broken(f"the far gateway answered with something else: {error}") from error
