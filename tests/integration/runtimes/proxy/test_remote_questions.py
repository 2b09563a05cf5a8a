"""A remote gateway that asks questions, or changes what it supports, over HTTP."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from aiohttp import web

from hermes.agent.plan import RuntimePlan
from hermes.agent.turn import run_turn
from hermes.kit.clock import SystemClock
from hermes.kit.http_server import shut_down_server
from hermes.ports.approvals import ApprovalRequest, Approvals, Decision, Isolation
from hermes.ports.turn import Emit
from hermes.runtimes.proxy.chat_runtime import RemoteGateway
from hermes.runtimes.proxy.gateway_client import CACHE_SECONDS, HERMES_OBJECT, REQUIRED_FEATURES
from hermes.runtimes.proxy.plugin import RemoteRuntime
from hermes.runtimes.proxy.remote_turn import MAX_OPEN_QUESTIONS, RemoteTurnDeps
from hermes.schema.events import Notice, Outcome
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.testing.clock import FakeClock
from support.turns import SCOPE, EventRecorder, user_message

ASKS = {
    "event": "approval.request",
    "question_id": "q1",
    "command": "rm -r build",
    "choices": ["once", "deny"],
}


class AskingGateway:
    """Implements the run protocol, and waits for an approval before it answers."""

    def __init__(self) -> None:
        self.decided: list[Any] = []
        self.asked: list[str] = []
        self.runs = True
        self.able = self.able_then = 200
        """Its capability responses: the first one, and the one after it has refused a run."""
        self.asks: dict[str, Any] = ASKS
        self.then: dict[str, Any] = {}
        self.more: list[dict[str, Any]] = []
        self._leave = anyio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        if request.path == "/v1/capabilities" and self.able != 200:
            return web.Response(status=self.able)
        if request.path == "/v1/capabilities":
            return web.json_response(
                {"object": HERMES_OBJECT, "features": dict.fromkeys(REQUIRED_FEATURES, True)}
            )
        if request.path == "/v1/chat/completions":
            text = 'data: {"choices":[{"delta":{"content":"Plain."},"finish_reason":"stop"}]}\n\n'
            return web.Response(text=text + "data: [DONE]\n\n", content_type="text/event-stream")
        if not self.runs:
            self.able = self.able_then
            return web.json_response({"error": "nothing here"}, status=404)
        if request.path.endswith(("/approval", "/clarify")):
            self.decided.append((request.path, await request.json()))
            self._leave.set()
            return web.json_response({})
        if request.path.endswith("/events"):
            return await self._events(request)
        return web.json_response({"run_id": "run_1"}, status=202)

    async def _events(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(frame(1, self.asks))
        if self.then:
            await response.write(frame(2, self.then))
        for number, event in enumerate(self.more, 3):
            await response.write(frame(number, event))
        await self._leave.wait()
        await response.write(
            frame(3 + len(self.more), {"event": "run.completed", "output": "Done."})
        )
        return response

    def go_on(self) -> None:
        self._leave.set()


def frame(number: int, event: dict[str, Any]) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (number, msgspec.json.encode(event))


@asynccontextmanager
async def served(far: AskingGateway) -> AsyncGenerator[str]:
    runner = web.ServerRunner(web.Server(far.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await shut_down_server(runner)


def remote_runtime(folder: Path, url: str, counsel: Approvals | None = None) -> RemoteRuntime:
    far, blobs = RemoteGateway(url=url), FileBlobs(folder)
    return RemoteRuntime(
        RemoteTurnDeps(remote=far, clock=SystemClock(), blobs=blobs, approvals=counsel)
    )


async def ask(runtime: RemoteRuntime) -> EventRecorder:
    recorder = EventRecorder()
    with anyio.fail_after(60):
        await run_turn(
            RuntimePlan(scope=SCOPE, runtime=runtime, system=""),
            [user_message("Clean up.")],
            recorder,
        )
    return recorder


class FakeApprovals:
    """Answers every question with the same text, and approves or denies."""

    def __init__(self, words: str | None = None, *, allows: bool = False) -> None:
        self._words = words
        self._allows = allows
        self.wishes: list[tuple[Scope, ApprovalRequest]] = []

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.wishes.append((scope, request))
        return Decision(allowed=self._allows)

    async def ask_person(
        self, scope: Scope, text: str, choices: Sequence[str], emit: Emit
    ) -> str | None:
        return self._words


@pytest.mark.parametrize(("allows", "choice"), [(True, "once"), (False, "deny")])
async def test_local_approval_is_sent_to_the_remote_gateway(
    tmp_path: Path, choice: str, *, allows: bool
) -> None:
    far, person = AskingGateway(), FakeApprovals(allows=allows)
    async with served(far) as url:
        recorder = await ask(remote_runtime(tmp_path, url, person))
    request = ApprovalRequest(
        tool="the remote gateway", action="rm -r build", reaching=Isolation.BEYOND
    )
    assert person.wishes == [(msgspec.structs.replace(SCOPE, call="q1"), request)]
    assert far.decided == [("/v1/runs/run_1/approval", {"choice": choice, "question_id": "q1"})]
    assert (recorder.ended.outcome, recorder.texts[-1]) == (Outcome.DONE, "Done.")


async def test_local_answer_is_sent_to_the_remote_gateway(tmp_path: Path) -> None:
    far, person = AskingGateway(), FakeApprovals("The second.")
    far.asks = {"event": "clarify.request", "question_id": "q2", "description": "Which?"}
    async with served(far) as url:
        recorder = await ask(remote_runtime(tmp_path, url, person))
    notices = {"answer": "The second.", "question_id": "q2"}
    assert far.decided == [("/v1/runs/run_1/clarify", notices)]
    assert recorder.texts[-1] == "Done."


class SilentApprovals(FakeApprovals):
    """Never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = anyio.Event()

    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        try:
            await anyio.sleep_forever()
        finally:
            self.let_go.set()
        return Decision(allowed=False)


async def test_remote_answer_withdraws_the_local_question(tmp_path: Path) -> None:
    far, person, recorder = AskingGateway(), SilentApprovals(), EventRecorder()
    far.then = {"event": "approval.responded", "question_id": "q1", "choice": "once"}
    async with served(far) as url:
        runtime = remote_runtime(tmp_path, url, person)
        plan = RuntimePlan(scope=SCOPE, runtime=runtime, system="")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(run_turn, plan, [user_message("Clean up.")], recorder)
                await person.let_go.wait()
                assert len(recorder.said) == 1
                far.go_on()
    assert (far.decided, recorder.texts[-1]) == ([], "Done.")


class SlowApprovals(SilentApprovals):
    async def decide(self, scope: Scope, request: ApprovalRequest, emit: Emit) -> Decision:
        self.wishes.append((scope, request))
        return await super().decide(scope, request, emit)


async def test_too_many_questions_are_refused(tmp_path: Path) -> None:
    far, person, recorder = AskingGateway(), SlowApprovals(), EventRecorder()
    names = ["q1", *(f"more{number}" for number in range(MAX_OPEN_QUESTIONS)), "q1"]
    far.more = [ASKS | {"question_id": name, "command": name} for name in names]
    async with served(far) as url:
        plan = RuntimePlan(scope=SCOPE, runtime=remote_runtime(tmp_path, url, person), system="")
        with anyio.fail_after(60):
            await run_turn(plan, [user_message("Clean up.")], recorder)
    assert len(person.wishes) == MAX_OPEN_QUESTIONS
    path, body = far.decided[0]
    assert (path, body["choice"]) == ("/v1/runs/run_1/approval", "deny")
    assert body["question_id"] == names[MAX_OPEN_QUESTIONS]
    notices = [event.text for event in recorder.events if isinstance(event, Notice)]
    assert "The remote gateway has 8 open questions; one more was rejected." in notices
    assert recorder.texts[-1] == "Done."


async def test_question_is_shown_without_an_approver(tmp_path: Path) -> None:
    far, recorder = AskingGateway(), EventRecorder()
    async with served(far) as url:
        plan = RuntimePlan(scope=SCOPE, runtime=remote_runtime(tmp_path, url), system="")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(run_turn, plan, [user_message("Clean up.")], recorder)
                await recorder.until(lambda event: isinstance(event, Notice))
                far.go_on()
    notices = [event.text for event in recorder.events if isinstance(event, Notice)]
    assert notices == ["The remote gateway asks for approval: rm -r build"]
    assert (far.decided, recorder.texts[-1]) == ([], "Done.")


async def test_replaced_gateway_is_used_as_a_plain_server(tmp_path: Path) -> None:
    far = AskingGateway()
    far.runs, far.able_then = False, 404
    async with served(far) as url:
        runtime = remote_runtime(tmp_path, url)
        recorder = await ask(runtime)
        assert recorder.texts[-1] == "Plain."
        capable, plain = "GET /v1/capabilities", "POST /v1/chat/completions"
        assert far.asked == [capable, "POST /v1/runs", capable, plain]
        await ask(runtime)
        assert far.asked[4:] == [plain]


@pytest.mark.parametrize("status", [200, 401, 500])
async def test_refused_run_alone_does_not_mean_a_plain_server(tmp_path: Path, status: int) -> None:
    """A proxy in between may not know the path for a moment."""
    far = AskingGateway()
    far.runs, far.able_then = False, status
    async with served(far) as url:
        recorder = await ask(remote_runtime(tmp_path, url))
    assert recorder.ended.outcome is Outcome.FAILED
    assert f"Proxy error ({500 if status == 500 else 404})" in recorder.ended.reason
    assert far.asked == ["GET /v1/capabilities", "POST /v1/runs", "GET /v1/capabilities"]


@pytest.mark.parametrize("status", [500, 522])
async def test_temporary_failure_does_not_mean_a_plain_server(tmp_path: Path, status: int) -> None:
    """A chat completion has no role: every user would be treated as the owner there."""
    far = AskingGateway()
    far.able = status
    async with served(far) as url:
        recorder = await ask(remote_runtime(tmp_path, url))
    assert recorder.ended.outcome is Outcome.FAILED
    assert f"Proxy error ({status})" in recorder.ended.reason
    assert far.asked == ["GET /v1/capabilities"]


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_cached_capabilities_are_used_during_a_failure(tmp_path: Path, status: int) -> None:
    far, clock = AskingGateway(), FakeClock()
    far.go_on()
    async with served(far) as url:
        runtime = RemoteRuntime(
            RemoteTurnDeps(remote=RemoteGateway(url=url), clock=clock, blobs=FileBlobs(tmp_path))
        )
        await ask(runtime)
        far.able = status
        await clock.advance(CACHE_SECONDS + 1)
        assert (await ask(runtime)).texts[-1] == "Done."
    assert far.asked.count("GET /v1/capabilities") == 2
    assert far.asked.count("POST /v1/runs") == 2


async def test_capabilities_are_refreshed_after_a_while(tmp_path: Path) -> None:
    far, clock = AskingGateway(), FakeClock()
    far.go_on()
    async with served(far) as url:
        blobs = FileBlobs(tmp_path)
        runtime = RemoteRuntime(
            RemoteTurnDeps(remote=RemoteGateway(url=url), clock=clock, blobs=blobs)
        )
        for _ in range(2):
            await ask(runtime)
        assert far.asked.count("GET /v1/capabilities") == 1
        await clock.advance(CACHE_SECONDS + 1)
        await ask(runtime)
        assert far.asked.count("GET /v1/capabilities") == 2
