"""The board's tools, as called by workers and by other turns."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from hermes.kanban.boards import BoardInfo
from hermes.kanban.lifecycle import ClaimTerms, claim_task, reclaim_task
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.kanban.tool import TOOLS
from hermes.kanban.worker import Worker
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.board import BoardRows
from hermes.ports.store import Store
from hermes.ports.tool import ToolContext
from hermes.schema.errors import LeaseLost, StateConflict, UsageError
from hermes.schema.scope import Address, Role, Scope
from hermes.tools.feature_tool import WrappedTool

pytestmark = pytest.mark.anyio


def context(
    worker: Worker | None = None, *, address: Address | None = None, role: Role = Role.OWNER
) -> ToolContext:
    async def progress(text: str) -> None:
        pass

    key = worker.session_key("ada") if worker else ""
    scope = Scope(
        profile="ada", session="s1", run="r1", workspace="/", key=key, address=address, role=role
    )
    return ToolContext(scope, "call", progress)


async def call(
    service: BoardService, name: str, ctx: ToolContext, **args: object
) -> dict[str, object]:
    (tool,) = [one for one in TOOLS if one.name == f"kanban_{name}"]
    answer = await tool.run(service, msgspec.convert(args, tool.arguments), ctx)
    return msgspec.json.decode(msgspec.json.encode(answer))


async def started(service: BoardService) -> Worker:
    def work(rows: BoardRows) -> Worker:
        task = create_task(rows, NewTask(title="task", assignee="ada"), service.now())
        terms = ClaimTerms(lock="host:1", expires=service.now() + 900)
        return Worker("default", task.id, claim_task(rows, task.id, terms, service.now()).id)

    return await service.write(None, work)


async def test_worker_reads_and_completes_its_own_task(service: BoardService) -> None:
    worker = await started(service)
    shown = await call(service, "show", context(worker))
    assert f"# Task {worker.task}" in str(shown["worker_context"])
    done = await call(service, "complete", context(worker), summary="checked", artifacts=["/a"])
    assert done == {"ok": True, "task_id": worker.task, "run_id": worker.run}
    (run,) = await service.read(None, lambda rows: rows.runs(worker.task))
    assert run.metadata == {"worker_session_id": "s1", "artifacts": ["/a"]}


async def test_worker_may_not_touch_other_tasks(service: BoardService) -> None:
    worker = await started(service)
    other = await started(service)
    for name, args in (
        ("complete", {"summary": "x"}),
        ("block", {"reason": "x"}),
        ("heartbeat", {}),
    ):
        with pytest.raises(UsageError, match="not yours"):
            await call(service, name, context(worker), task_id=other.task, **args)
    with pytest.raises(UsageError):
        await call(service, "list", context(worker))


async def test_worker_whose_run_was_taken_back_completes_nothing(service: BoardService) -> None:
    worker = await started(service)
    await service.write(None, lambda rows: reclaim_task(rows, worker.task, "stale", service.now()))
    with pytest.raises(LeaseLost):
        await call(service, "complete", context(worker), summary="late")


async def test_completion_with_invented_tasks_is_refused_and_recorded(
    service: BoardService,
) -> None:
    worker = await started(service)
    with pytest.raises(StateConflict, match="t_12345678"):
        await call(service, "complete", context(worker), summary="x", created_cards=["t_12345678"])
    kinds = await service.read(
        None, lambda rows: [event.kind for event in rows.events(worker.task, 9)]
    )
    assert kinds[-1] == "completion_blocked_hallucination"


async def test_created_task_subscribes_the_chat_under_the_profile_of_the_turn(
    service: BoardService,
) -> None:
    ctx = context(address=Address("telegram", "42"))
    made = await call(service, "create", ctx, title="later", assignee="eve")
    assert (made["status"], made["subscribed"]) == ("ready", True)
    (found,) = await service.read(None, lambda rows: rows.subscriptions(str(made["task_id"])))
    assert (found.notifier_profile, found.chat_id) == ("ada", "42")


async def test_guest_may_not_use_the_board(service: BoardService) -> None:
    with pytest.raises(UsageError, match="owner"):
        await call(service, "list", context(role=Role.GUEST))


async def test_folder_outside_the_workspace_needs_approval(
    service: BoardService, tmp_path: Path
) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    asked: list[str] = []

    async def refuse(request: ApprovalRequest) -> Decision:
        asked.append(request.action)
        return Decision(allowed=False, why="No.")

    ctx = context()
    ctx = structs.replace(
        ctx, scope=structs.replace(ctx.scope, workspace=str(own)), request_approval=refuse
    )
    for kind, path in (("dir", str(elsewhere)), ("worktree", "../elsewhere")):
        values = {"title": "t", "assignee": "eve", "workspace_kind": kind, "workspace_path": path}
        with pytest.raises(UsageError, match=r"No\."):
            await call(service, "create", ctx, **values)
    assert all(str(elsewhere) in action for action in asked)
    await call(
        service, "create", ctx, title="t", assignee="eve", workspace_kind="dir",
        workspace_path=str(own / "part"),
    )  # fmt: skip
    assert len(asked) == 2


async def test_what_others_wrote_is_marked_as_foreign(service: BoardService) -> None:
    worker = await started(service)
    foreign = {name: await is_foreign(service, worker, name) for name in ("show", "heartbeat")}
    assert foreign == {"show": True, "heartbeat": False}
    assert await is_foreign(service, worker, "attachments")


async def is_foreign(service: BoardService, worker: Worker, name: str) -> bool:
    (tool,) = [one for one in TOOLS if one.name == f"kanban_{name}"]
    output = await WrappedTool(tool, lambda: service).run(msgspec.Raw(b"{}"), context(worker))
    return output.foreign


async def test_session_is_remembered_with_the_subscription_of_its_own_chat(
    service: BoardService, store: Store
) -> None:
    other = context(address=Address("telegram", "1"))
    parent = await call(service, "create", other, title="first", assignee="eve")
    ctx = context(address=Address("telegram/work", "42", "7"))
    values = {"title": "then", "assignee": "eve", "parents": [parent["task_id"]]}
    child = await call(service, "create", ctx, **values)
    watches = await store.board_watches.of_board("default")
    (own,) = [one for one in watches if one.task == child["task_id"]]
    assert (own.platform, own.chat, own.thread) == ("telegram/work", "42", "7")


async def test_worker_links_only_its_own_tasks_on_its_own_board(service: BoardService) -> None:
    service.boards.create(BoardInfo(slug="work"))
    worker, other = await started(service), await started(service)
    ctx = context(worker)
    made = await call(service, "create", ctx, title="before", assignee="eve")
    service.boards.switch("work")
    await call(service, "link", ctx, parent_id=made["task_id"], child_id=worker.task)
    assert await service.read("default", lambda rows: rows.parents(worker.task))
    with pytest.raises(UsageError, match="only your own"):
        await call(service, "link", ctx, parent_id=worker.task, child_id=other.task)
    with pytest.raises(UsageError, match="board default"):
        await call(service, "link", ctx, parent_id="a", child_id="b", board="work")


async def test_reviewer_gets_the_work_and_sends_it_back(service: BoardService) -> None:
    worker = await started(service)
    with pytest.raises(UsageError, match="ada did the work"):
        await call(service, "request_review", context(worker), summary="look", reviewer="ada")
    await call(service, "request_review", context(worker), summary="look", reviewer="eve")
    terms = ClaimTerms(lock="host:1", expires=service.now() + 900)
    run = await service.write(
        None, lambda rows: claim_task(rows, worker.task, terms, service.now())
    )
    reviewer = Worker("default", worker.task, run.id)
    shown = await call(service, "show", context(reviewer))
    assert "## Review" in str(shown["worker_context"])
    back = await call(service, "request_changes", context(reviewer), reason="no tests")
    assert back["status"] == "ready"
    task = await service.read(None, lambda rows: rows.task(worker.task))
    assert task is not None
    assert task.assignee == "ada"
