"""The board's tools, as called by workers and by other turns."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from hermes.kanban.boards import Access, BoardInfo
from hermes.kanban.lifecycle import ClaimTerms, claim_task, reclaim_task
from hermes.kanban.service import BoardService, DownloadedFile, GoalVerdict
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
from support.board_agents import NoAgents


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


async def started(service: BoardService, **fields: object) -> Worker:
    new = msgspec.convert({"title": "task", "assignee": "ada", **fields}, NewTask)

    def work(rows: BoardRows) -> Worker:
        task = create_task(rows, new, service.now())
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


async def test_worker_with_a_reclaimed_run_completes_nothing(service: BoardService) -> None:
    worker = await started(service)
    await service.write(None, lambda rows: reclaim_task(rows, worker.task, "stale", service.now()))
    with pytest.raises(LeaseLost):
        await call(service, "complete", context(worker), summary="late")
    terms = ClaimTerms(lock="host:2", expires=service.now() + 900)
    next_run = await service.write(
        None, lambda rows: claim_task(rows, worker.task, terms, service.now())
    )
    for name, args in {"complete": {"summary": "late"}, "heartbeat": {}}.items():
        with pytest.raises(LeaseLost):
            await call(service, name, context(worker), **args)
    task = await service.read(None, lambda rows: rows.task(worker.task))
    assert task is not None
    assert task.current_run_id == next_run.id


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
    named = f"See t_12345678 and {worker.task}."
    await call(service, "complete", context(worker), summary=named)
    events = await service.read(None, lambda rows: rows.events(worker.task, 9))
    assert [one.payload for one in events if one.kind == "suspected_hallucinated_references"] == [
        {"phantom_refs": ["t_12345678"]}
    ]


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
    questions: list[str] = []

    async def refuse(request: ApprovalRequest) -> Decision:
        questions.append(request.action)
        return Decision(allowed=False, why="No.")

    ctx = context()
    ctx = structs.replace(
        ctx, scope=structs.replace(ctx.scope, workspace=str(own)), request_approval=refuse
    )
    for kind, path in (("dir", str(elsewhere)), ("worktree", "../elsewhere")):
        values = {"title": "t", "assignee": "eve", "workspace_kind": kind, "workspace_path": path}
        with pytest.raises(UsageError, match=r"No\."):
            await call(service, "create", ctx, **values)
    assert all(str(elsewhere) in action for action in questions)
    await call(
        service, "create", ctx, title="t", assignee="eve", workspace_kind="dir",
        workspace_path=str(own / "part"),
    )  # fmt: skip
    assert len(questions) == 2


async def test_text_of_others_is_marked_as_foreign(service: BoardService) -> None:
    worker = await started(service)
    foreign = {name: await is_foreign(service, worker, name) for name in ("show", "heartbeat")}
    assert foreign == {"show": True, "heartbeat": False}
    assert await is_foreign(service, worker, "attachments")
    assert await is_foreign(service, None, "list"), "anyone who creates tasks chooses their titles"


async def is_foreign(service: BoardService, worker: Worker | None, name: str) -> bool:
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
    with pytest.raises(UsageError, match="only make your own"):
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


async def test_artifacts_are_stored_with_the_end_of_the_task(
    service: BoardService, tmp_path: Path
) -> None:
    worker = await started(service)
    folder = tmp_path / "kanban/workspaces" / worker.task
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("text")
    (tmp_path / "secret").write_text("key")
    kept = tmp_path / "kanban/attachments" / worker.task
    names = [str(folder / "a.txt"), str(tmp_path / "secret")]
    arguments = {"summary": "written", "artifacts": names}
    with pytest.raises(StateConflict):
        await call(service, "complete", context(worker), **arguments, created_cards=["t_missing"])
    assert not [*kept.glob("*")]
    await call(service, "complete", context(worker), **arguments)
    (stored,) = await service.read(None, lambda rows: rows.attachments(worker.task))
    assert Path(stored.stored_path).read_text() == "text"
    (run,) = await service.read(None, lambda rows: rows.runs(worker.task))
    assert (run.metadata or {})["artifacts"] == [stored.stored_path, names[1]]
    assert [one.name for one in kept.iterdir()] == ["a.txt"]


async def test_artifacts_of_reviewed_work_are_copied_once(
    service: BoardService, tmp_path: Path
) -> None:
    worker = await started(service)
    folder = tmp_path / "kanban/workspaces" / worker.task
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("text")
    arguments = {"artifacts": ["a.txt"], "pages": 1}
    await call(service, "request_review", context(worker), summary="look", metadata=arguments)
    (stored,) = await service.read(None, lambda rows: rows.attachments(worker.task))
    (run,) = await service.read(None, lambda rows: rows.runs(worker.task))
    assert run.metadata == {"artifacts": [stored.stored_path], "pages": 1}
    await call(service, "complete", context(), task_id=worker.task, summary="accepted")
    assert len(await service.read(None, lambda rows: rows.attachments(worker.task))) == 1


async def test_agent_without_access_may_not_change_a_board(service: BoardService) -> None:
    worker = await started(service)
    service.boards.save(BoardInfo(slug="default", access={"default": Access.READ}))
    await call(service, "show", context(), task_id=worker.task)
    with pytest.raises(UsageError, match="may not change the board default"):
        await call(service, "comment", context(), task_id=worker.task, body="hello")
    service.boards.save(BoardInfo(slug="default", access={"eve": Access.WRITE}))
    with pytest.raises(UsageError, match="may not read the board default"):
        await call(service, "list", context())


async def test_file_at_an_address_is_attached_unless_untrusted_text_asks_for_it(
    service: BoardService, agents: NoAgents
) -> None:
    worker = await started(service)
    agents.files["https://example.org/a.pdf"] = DownloadedFile(b"%PDF", "application/pdf", "a.pdf")
    url = {"url": "https://example.org/a.pdf"}
    added = await call(service, "attach_url", context(worker), **url)
    (stored,) = await service.read(None, lambda rows: rows.attachments(worker.task))
    assert (added["attachment_id"], added["size"]) == (stored.id, 4)
    assert (stored.filename, stored.content_type) == ("a.pdf", "application/pdf")

    async def deny(request: ApprovalRequest) -> Decision:
        return Decision(allowed=False, why=f"no: {request.action}")

    untrusted = structs.replace(context(worker), foreign=True, request_approval=deny)
    with pytest.raises(UsageError, match=r"no: download https://example\.org/a\.pdf"):
        await call(service, "attach_url", untrusted, **url)


async def test_worker_in_goal_mode_is_done_when_the_judge_says_so(
    service: BoardService, agents: NoAgents
) -> None:
    worker = await started(service, goal_mode=True)
    agents.verdicts = [GoalVerdict(met=False, reason="no test ran"), GoalVerdict(met=True)]
    with pytest.raises(StateConflict, match="not done yet: no test ran"):
        await call(service, "complete", context(worker), summary="done")
    with pytest.raises(UsageError, match="until it is done"):
        await call(service, "block", context(worker), reason="hard", kind="capability")
    done = await call(service, "complete", context(worker), summary="done")
    assert done["ok"]
    assert agents.asked == ["task", "task"]
    events = await service.read(None, lambda rows: rows.events(worker.task, 50))
    assert [one.kind for one in events][-2:] == ["completion_rejected", "completed"]


async def test_reviewer_and_orchestrator_of_a_goal_decide_themselves(service: BoardService) -> None:
    worker = await started(service, goal_mode=True)
    await call(service, "request_review", context(worker), summary="look", reviewer="eve")
    terms = ClaimTerms(lock="host:1", expires=service.now() + 900)
    run = await service.write(
        None, lambda rows: claim_task(rows, worker.task, terms, service.now())
    )
    reviewer = Worker("default", worker.task, run.id)
    assert (await call(service, "complete", context(reviewer), summary="fine"))["ok"]
    other = await started(service, goal_mode=True)
    assert (await call(service, "complete", context(), task_id=other.task, summary="ok"))["ok"]


@pytest.mark.parametrize(
    ("contract", "named", "problem"),
    [
        ("ada/boats", None, "pull request in ada/boats"),
        ("ada/boats", "https://github.com/eve/boats/pull/7", "pull request in ada/boats"),
        ("ada/boats", "https://github.com/ada/boats/pull/8", "checks are still running"),
        ("ada/boats", "https://github.com/ada/boats/pull/7", ""),
        ("https://github.com/ada/boats/pull/7", "https://github.com/ada/boats/pull/8", "/pull/7"),
        ("https://github.com/ada/boats/pull/7", "https://github.com/ada/boats/pull/7", ""),
        ("local-only", "https://github.com/ada/boats/pull/7", "local-only"),
        ("local-only", None, ""),
    ],
)
async def test_completion_contract_is_met_before_the_task_is_done(
    service: BoardService, agents: NoAgents, contract: str, named: str | None, problem: str
) -> None:
    agents.pull_requests = {
        "https://github.com/ada/boats/pull/7": "",
        "https://github.com/ada/boats/pull/8": "its checks are still running.",
    }
    worker = await started(service, completion_contract=contract)
    metadata = {"published_pr": named} if named else {}
    done = call(service, "complete", context(worker), summary="done", metadata=metadata)
    if problem:
        with pytest.raises(StateConflict, match=problem):
            await done
    else:
        assert (await done)["ok"]


async def test_unreadable_contract_is_refused(service: BoardService) -> None:
    with pytest.raises(UsageError, match="not a completion contract"):
        await started(service, completion_contract="all tests green")
