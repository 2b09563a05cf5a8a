"""Run one turn as a run of the remote gateway, over a link that may break."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct, structs

from hermes.kit.clock import Clock
from hermes.kit.json_errors import JSON_ERRORS
from hermes.kit.tasks import background_tasks
from hermes.ports.approvals import ApprovalRequest, Approvals, Isolation, TurnSuspended
from hermes.ports.runtime import EmitRuntimeEvent, RuntimeRequest, TurnEnd
from hermes.ports.store import Blobs
from hermes.runtimes.proxy.attachments import MessageEncoder
from hermes.runtimes.proxy.chat_runtime import (
    AnswerTooLong,
    RemoteGateway,
    is_program_note,
    remote_session_id,
)
from hermes.runtimes.proxy.errors import (
    LinkBroken,
    quote,
    roles_unsupported,
    run_interrupted,
    run_unknown,
    stream_broken,
    stream_invalid,
    turn_timed_out,
)
from hermes.runtimes.proxy.followups import RemoteFollowups
from hermes.runtimes.proxy.gateway_client import (
    RUNS_PATH,
    UNSUPPORTED_STATUSES,
    GatewayClient,
    RemoteCapabilities,
    RequestRejected,
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
"""Seconds between two checks for new messages."""
INTERRUPTED_CODE = "interrupted"
REMOTE_TOOL = "the remote gateway"
MAX_OPEN_QUESTIONS = 8
"""Remote questions shown at the same time; further ones are rejected."""
Body = TypeVar("Body", AcceptedRun, RemoteRunState)


class RunsUnsupported(Exception):
    """A server that claimed to support runs does not; it may have been replaced."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.sentence)
        self.error = error


class RemoteTurnDeps(Struct, frozen=True, kw_only=True):
    """The dependencies of all turns. `approvals` asks people the remote questions."""

    remote: RemoteGateway
    clock: Clock
    blobs: Blobs
    approvals: Approvals | None = None
    followups: RemoteFollowups | None = None


class RemoteTurn:
    def __init__(
        self,
        deps: RemoteTurnDeps,
        capabilities: RemoteCapabilities,
        runtime_request: RuntimeRequest,
        emit: EmitRuntimeEvent,
    ) -> None:
        self._deps = deps
        self._remote = deps.remote
        self._capabilities = capabilities
        self._runtime_request = runtime_request
        self._emit = emit
        self._client = GatewayClient(deps.remote, deps.clock)
        self._mapper = RunEventMapper()
        self._steered = SteeringTracker()
        self._body = b""
        self._key = ""
        self._run = ""
        self._open_questions: dict[str, anyio.CancelScope] = {}
        self._may_be_running = False
        """Whether a run may be active there: it was requested, and not rejected."""

    async def run(self) -> TurnEnd:
        async with self._client:
            try:
                await self._run_with_deadline()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._stop()
                    await self._record_partial()
                raise
        return await self._end()

    async def _run_with_deadline(self) -> None:
        with anyio.move_on_after(self._remote.total or None) as limit:
            await self._begin()
            await self._follow_and_steer()
        if limit.cancelled_caught:
            raise turn_timed_out(self._remote.total)

    async def _begin(self) -> None:
        encoder = MessageEncoder(self._deps.blobs, files=self._capabilities.files)
        begin, omitted = await run_body(self._runtime_request, encoder, later=self._is_followed)
        if begin.role is not Role.OWNER and not self._capabilities.roles:
            raise roles_unsupported()
        for name in omitted:
            await self._emit(Notice(f"{name} cannot be sent to the remote gateway."))
        self._body = msgspec.json.encode(begin)
        keys = self._idempotency_keys()
        for number, key in enumerate(keys, 1):
            self._key = key
            self._run = await self._post()
            last = number == len(keys)
            if last or (await self._state()).status != "cancelled":
                break
        if self._is_followed and (followups := self._deps.followups) is not None:
            scope = self._runtime_request.scope
            known = followups.is_followed(remote_session_id(scope))
            await followups.follow(scope, 0.0 if known else (await self._state()).created_at)

    @property
    def _is_followed(self) -> bool:
        return self._capabilities.sessions and self._deps.followups is not None

    def _idempotency_keys(self) -> Sequence[str]:
        """Return the key of the question, then one for each time the turn was resumed.

        A run that was stopped together with this gateway is not resumed: the next key starts
        another one, and finds it again if this gateway is killed once more.
        """
        key = run_key(self._runtime_request, self._body)
        keys = [key]
        for message in reversed(self._runtime_request.messages):
            if not is_program_note(message):
                break
            keys.insert(1, f"{key}-{message.id}")
        return keys

    async def _post(self) -> str:
        """Start the run; the idempotency key makes repeated requests harmless."""
        self._may_be_running = True
        try:
            response = await self._client.call_with_retries(
                "POST",
                RUNS_PATH,
                self._body,
                Idempotency_Key=self._key,
                X_Hermes_Session_Id=remote_session_id(self._runtime_request.scope),
            )
        except ModelError as error:
            if isinstance(error.__cause__, RequestRejected):
                self._may_be_running = False
                if error.__cause__.status in UNSUPPORTED_STATUSES:
                    raise RunsUnsupported(error) from error
            raise
        return _decode_body(response, AcceptedRun).run_id

    async def _state(self) -> RemoteRunState:
        response = await self._client.call_with_retries("GET", f"{RUNS_PATH}/{self._run}")
        return _decode_body(response, RemoteRunState)

    async def _follow_and_steer(self) -> None:
        """Process events to the end, while forwarding steering messages."""
        async with background_tasks() as group:
            if self._capabilities.steering:
                group.start_soon(self._forward_steering)
            await self._follow(group)

    async def _follow(self, group: TaskGroup) -> None:
        retries = RetryTimer(self._remote, self._deps.clock)
        notified = False
        while self._mapper.end is None:
            try:
                await self._listen(retries, group)
                if self._mapper.end is None:
                    await self._check_ended(retries)
            except RequestRejected as error:
                if error.status == 404:
                    raise run_unknown() from error
                await retries.wait(error)
            except LinkBroken as error:
                if not notified:
                    notified = True
                    notice = "The connection to the remote gateway broke; reconnecting."
                    await self._emit(Notice(notice))
                await retries.wait(error)

    async def _listen(self, retries: RetryTimer, group: TaskGroup) -> None:
        """Read until the remote gateway closes the stream, or the link breaks."""
        mapper = self._mapper
        path = f"{RUNS_PATH}/{self._run}/events"
        async with aclosing(self._client.stream(path, mapper.last_number)) as events:
            async for event in events:
                if not event.id.isdecimal():
                    continue
                try:
                    emitted = mapper.feed(int(event.id), event.data)
                except (AnswerTooLong, *JSON_ERRORS) as error:
                    raise stream_invalid(error) from error
                retries.reset()
                for runtime_event in emitted:
                    await self._emit(runtime_event)
                self._steered.applied(mapper.applied)
                mapper.applied.clear()
                self._forward_questions(group)
                if mapper.end is not None:
                    return

    async def _check_ended(self, retries: RetryTimer) -> None:
        """The stream ended without an end event: fetch the result, as events may be gone."""
        state = await self._state()
        if state.end:
            for event in self._mapper.close(state):
                await self._emit(event)
        else:
            await retries.wait(LinkBroken(ConnectionError("the remote gateway closed the stream")))

    async def _forward_steering(self) -> None:
        while True:
            await self._deps.clock.sleep(STEERING_INTERVAL)
            messages = await self._runtime_request.read_steering()
            # Registered first, so that each message is answered by this run or the next.
            for message in messages:
                self._steered.add(message)
            for message in messages:
                await self._steer(message)

    async def _steer(self, message: User) -> None:
        encoder = MessageEncoder(self._deps.blobs, files=self._capabilities.files)
        body = msgspec.json.encode({"input": [input_message(await encoder.encode(message))]})
        path = f"{RUNS_PATH}/{self._run}/steer"
        try:
            await self._client.call_with_retries("POST", path, body, Idempotency_Key=message.id)
        except ModelError as error:
            log.info("the remote gateway did not accept a steering message: %s", error)

    def _forward_questions(self, group: TaskGroup) -> None:
        """Ask remote questions here, unless they are answered already."""
        mapper, approvals = self._mapper, self._deps.approvals
        for question in mapper.questions:
            if approvals is None or question.question in self._open_questions:
                continue
            if len(self._open_questions) >= MAX_OPEN_QUESTIONS:
                group.start_soon(self._reject, question)
                continue
            scope = self._open_questions[question.question] = anyio.CancelScope()
            group.start_soon(self._ask_people, approvals, question, scope)
        for answered in self._open_questions.keys() & set(mapper.answered):
            self._open_questions[answered].cancel()
        mapper.questions.clear()
        mapper.answered.clear()

    async def _ask_people(
        self, approvals: Approvals, question: RemoteQuestion, scope: anyio.CancelScope
    ) -> None:
        """Without an answer here, the remote gateway applies its own timeout."""
        answer: ApprovalBody | ClarifyBody | None = None
        try:
            with scope:
                answer = await self._answer_to(approvals, question)
        except TurnSuspended:
            log.info("a remote question is asked again after the next start")
        finally:
            del self._open_questions[question.question]
        if answer is not None:
            await self._send_answer(question, answer)

    async def _reject(self, question: RemoteQuestion) -> None:
        """Deny approvals beyond the limit; open questions get no made-up answer."""
        problem = f"The remote gateway has {MAX_OPEN_QUESTIONS} open questions"
        await self._emit(Notice(f"{problem}; one more was rejected."))
        if not question.open:
            denial = ApprovalBody(ApprovalChoice.DENY.value, question.question)
            await self._send_answer(question, denial)

    async def _send_answer(
        self, question: RemoteQuestion, answer: ApprovalBody | ClarifyBody
    ) -> None:
        path = "clarify" if question.open else "approval"
        body = msgspec.json.encode(answer)
        try:
            await self._client.call_with_retries("POST", f"{RUNS_PATH}/{self._run}/{path}", body)
        except ModelError as error:
            # The answer may have arrived although the response was lost.
            log.info("the remote gateway did not accept an answer: %s", error)

    async def _answer_to(
        self, approvals: Approvals, question: RemoteQuestion
    ) -> ApprovalBody | ClarifyBody | None:
        """Approvals follow our own policy, which decides who may give them."""
        # The question id makes it recognizable if it is asked again.
        scope = structs.replace(self._runtime_request.scope, call=question.question)
        if question.open:
            text = await approvals.ask_person(scope, question.text, question.choices, self._show)
            return ClarifyBody(text, question.question) if text else None
        request = ApprovalRequest(
            tool=REMOTE_TOOL,
            action=question.action,
            reaching=Isolation.BEYOND,
            reason=question.reason,
        )
        decision = await approvals.decide(scope, request, self._show)
        choice = ApprovalChoice.ONCE if decision.allowed else ApprovalChoice.DENY
        return ApprovalBody(choice.value, question.question)

    async def _show(self, event: Event) -> None:
        if isinstance(event, QuestionAsked | QuestionAnswered):
            await self._emit(event)

    async def _stop(self) -> None:
        """Stop the run; if it is unknown whether it started, find out first."""
        if self._mapper.end is not None or not self._may_be_running:
            return
        with anyio.move_on_after(self._remote.grace) as limit:
            try:
                self._run = self._run or await self._post()
                await self._client.call_with_retries("POST", f"{RUNS_PATH}/{self._run}/stop")
            except ModelError as error:
                log.warning("cannot stop the remote gateway's run: %s", error)
        if limit.cancelled_caught:
            log.warning("cannot stop the remote gateway's run in time")

    async def _record_partial(self) -> None:
        for message in self._steered.read:
            await self._emit(MessageAdded(message))
        if self._mapper.text.strip():
            await self._emit(MessageAdded(self._mapper.message(Stop.CANCELLED)))

    async def _end(self) -> TurnEnd:
        mapper, end = self._mapper, self._mapper.end
        if end is None or end.event != COMPLETED:
            await self._record_partial()
            return _failed_end(end, self._remote.key)
        if not mapper.text.strip():
            raise ModelError("⚠️ Proxy error: the answer is empty.", hint="Try again.")
        # Only now, since a resumed turn must find its question last.
        for message in self._steered.read:
            await self._emit(MessageAdded(message))
        await self._emit(MessageAdded(mapper.message(Stop.END)))
        if end.partial or end.error:
            reason = end.error if isinstance(end.error, str) else "The answer is incomplete."
            return TurnEnd(Outcome.EXHAUSTED, quote(reason, self._remote.key), end.error_code)
        return TurnEnd(Outcome.DONE, late_messages=self._steered.unread)


def _failed_end(end: RemoteEvent | None, key: str) -> TurnEnd:
    if end is None or end.event != "run.failed":
        # It counts as a failure, because it was not stopped from here.
        sentence = (
            "⚠️ Proxy error: the turn was stopped at the remote gateway. Try again to restart it."
        )
        return TurnEnd(Outcome.FAILED, sentence, "cancelled")
    if end.error_code == INTERRUPTED_CODE:
        return TurnEnd(Outcome.FAILED, run_interrupted().sentence, end.error_code)
    why = quote(end.error, key) if isinstance(end.error, str) else ""
    sentence = f"⚠️ Proxy error: {why or 'the turn failed, no reason given'}"
    return TurnEnd(Outcome.FAILED, sentence, end.error_code or ModelError.code)


def _decode_body(data: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(data, type=kind)
    except JSON_ERRORS as error:
        raise stream_broken(f"the remote gateway sent an invalid response: {error}") from error
