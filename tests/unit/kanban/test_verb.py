"""The actions of `hermes kanban`."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.kanban.service import BoardService
from hermes.kanban.verb import VERB
from hermes.ports.feature import ActionCall, ActionReply
from hermes.schema.board import TaskChange, TaskStatus
from hermes.schema.errors import NotFound, StateConflict, UsageError
from hermes.schema.scope import Address

pytestmark = pytest.mark.anyio


async def run(service: BoardService, action: str, /, **values: Any) -> ActionReply:
    address, folder = values.pop("address", None), values.pop("folder", "")
    call = ActionCall(values=values, address=address, folder=folder)
    return await VERB.find(action).run(service, call)


async def data_of(service: BoardService, action: str, /, **values: Any) -> Any:
    """What `--json` prints."""
    reply = await run(service, action, **values)
    return msgspec.json.decode(msgspec.json.encode(reply.data))


async def create(service: BoardService, title: str, **values: Any) -> str:
    task = await data_of(service, "create", title=title, **values)
    return str(task["id"])


async def test_task_is_created_listed_shown_and_finished(
    service: BoardService, woken: list[str]
) -> None:
    task = await create(service, "Write the report", assignee="ada", body="two pages", priority=3)
    assert "Write the report" in (await run(service, "list")).text
    await run(service, "comment", task=task, text="please hurry")
    shown = (await run(service, "show", task=task)).text
    assert "two pages" in shown
    assert "please hurry" in shown
    await run(service, "complete", tasks=task, summary="done", metadata='{"pages": 2}')
    runs = await data_of(service, "runs", task=task)
    assert (runs[0]["summary"], runs[0]["metadata"]) == ("done", {"pages": 2})
    assert woken == ["default"] * 3


async def test_several_tasks_change_together_or_not_at_all(service: BoardService) -> None:
    first, second = [await create(service, title) for title in ("one", "two")]
    with pytest.raises(Exception, match="t_missing"):
        await run(service, "block", task=first, ids=["t_missing"], reason="wait")
    tasks = await data_of(service, "block", task=first, ids=[second], reason="wait")
    assert [task["status"] for task in tasks] == ["blocked", "blocked"]


async def test_unknown_assignee_is_refused_with_a_suggestion(service: BoardService) -> None:
    with pytest.raises(UsageError) as refused:
        await create(service, "task", assignee="adda")
    assert "ada" in refused.value.hint
    assert (await run(service, "list")).data == []


async def test_chat_that_creates_a_task_is_subscribed(service: BoardService) -> None:
    task = await create(service, "task", address=Address("telegram", "42", "7"))
    (found,) = await service.read(None, lambda rows: rows.subscriptions(task))
    assert (found.platform, found.chat_id, found.thread_id) == ("telegram", "42", "7")
    assert found.notifier_profile == "default"


async def test_file_is_attached_under_a_safe_name(service: BoardService, tmp_path: Path) -> None:
    task = await create(service, "task")
    source = tmp_path / "notes.txt"
    source.write_text("hello")
    await run(service, "attach", task=task, path="notes.txt", folder=str(tmp_path), name="../../n")
    (found,) = await service.read(None, lambda rows: rows.attachments(task))
    assert Path(found.stored_path) == tmp_path / "kanban/attachments" / task / "n"
    assert Path(found.stored_path).read_text() == "hello"
    await run(service, "attach-rm", attachment=found.id)
    assert not Path(found.stored_path).exists()


async def test_swarm_plans_workers_verifier_and_synthesizer_once(service: BoardService) -> None:
    values = {
        "goal": "compare",
        "worker": ["ada:read A", "eve:read B:web"],
        "verifier": "ada",
        "synthesizer": "eve",
        "idempotency_key": "k",
    }
    first = await run(service, "swarm", **values)
    assert (await run(service, "swarm", **values)).data == first.data
    tasks = await data_of(service, "list", sort="created")
    statuses = [(task["title"], task["status"]) for task in tasks]
    assert statuses == [
        ("compare", "done"),
        ("read A", "ready"),
        ("read B", "ready"),
        ("Verify: compare", "todo"),
        ("Summarize: compare", "todo"),
    ]


async def test_boards_are_separate(service: BoardService) -> None:
    await run(service, "boards", what="create", slug="work", switch=True)
    await create(service, "there")
    assert "1 task" in (await run(service, "boards")).text
    assert (await run(service, "list", board="default")).data == []


async def test_refused_claim_is_recorded(service: BoardService) -> None:
    parent = await create(service, "first")
    child = await create(service, "then", parent=[parent])
    ready = TaskChange(status=TaskStatus.READY)
    await service.write(None, lambda rows: rows.change_task(child, ready))
    with pytest.raises(StateConflict, match=parent):
        await run(service, "claim", task=child)
    events = await data_of(service, "tail", task=child)
    assert events[-1]["kind"] == "claim_rejected"


async def test_shown_runs_can_be_chosen_by_their_state(service: BoardService) -> None:
    task = await create(service, "task")
    for reason in ("stale", "stale again"):
        await run(service, "claim", task=task)
        await run(service, "reclaim", task=task, reason=reason)
    await run(service, "claim", task=task)
    shown = await data_of(service, "show", task=task, state_type="outcome", state_name="reclaimed")
    assert [one["error"] for one in shown["runs"]] == ["stale", "stale again"]


async def test_log_is_read_only_for_a_task(service: BoardService, tmp_path: Path) -> None:
    (tmp_path / "kanban").mkdir(exist_ok=True)
    (tmp_path / "kanban/secret.log").write_text("secret")
    (tmp_path / "kanban/logs").mkdir()
    with pytest.raises(NotFound, match="no task"):
        await run(service, "log", task="../secret")
