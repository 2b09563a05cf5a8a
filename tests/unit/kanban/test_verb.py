"""The actions of `hermes kanban`."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes.cli.arguments.features import add_verb
from hermes.commands.feature_commands import action_first
from hermes.kanban.board_settings import ProfileDescription
from hermes.kanban.service import BoardService
from hermes.kanban.verb import VERB
from hermes.ports.feature import ActionCall, ActionReply
from hermes.ports.store import Store
from hermes.schema.board import TaskChange, TaskStatus
from hermes.schema.errors import ModelError, NotFound, StateConflict, UsageError
from hermes.schema.scope import Address, Requester, Role, Scope
from hermes.testing.clock import FakeClock
from support.board_agents import NoAgents


async def run(service: BoardService, action: str, /, **values: Any) -> ActionReply:
    address, folder = values.pop("address", None), values.pop("folder", "")
    scope = Scope("default", "s1", "", "", address=address) if address else None
    call = ActionCall(values=values, scope=scope, folder=folder)
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


async def test_file_with_a_long_name_of_any_script_is_attached(
    service: BoardService, tmp_path: Path
) -> None:
    task = await create(service, "task")
    (tmp_path / "notes.txt").write_text("hello")
    name = "\U00020000" * 150
    await run(service, "attach", task=task, path="notes.txt", folder=str(tmp_path), name=name)
    (found,) = await service.read(None, lambda rows: rows.attachments(task))
    assert Path(found.stored_path).read_text() == "hello"


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
    made = await run(service, "create", title="there.")
    assert made.text.endswith(" (ready, not assigned): there.")
    assert (await run(service, "boards")).text == "  default  0 tasks\n* work     1 task"
    await create(service, "else", assignee="ada")
    stats = (await run(service, "stats")).text
    assert "\nnot assigned  1\n@ada          1\n" in stats
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


async def test_session_that_creates_a_task_by_command_is_woken(
    service: BoardService, store: Store
) -> None:
    task = await create(service, "task", address=Address("telegram", "42"))
    (watch,) = await store.board_watches.of_board("default")
    assert watch.task == task
    assert watch.scope is not None
    assert (watch.scope.session, watch.scope.address) == ("s1", Address("telegram", "42"))


async def test_change_by_hand_is_taken_back_once(service: BoardService) -> None:
    task = await create(service, "task", assignee="ada", priority=2)
    await run(service, "bulk", tasks=f"{task} t_missing", priority=7, archive=True)
    assert (await data_of(service, "show", task=task))["task"]["status"] == "archived"
    await run(service, "undo", task=task)
    found = (await data_of(service, "show", task=task))["task"]
    assert (found["status"], found["priority"]) == ("ready", 2)
    with pytest.raises(StateConflict):
        await run(service, "undo", task=task)
    await run(service, "assign", task=task, assignee="eve")
    await run(service, "claim", task=task)
    with pytest.raises(StateConflict, match="running"):
        await run(service, "undo", task=task)


async def test_bulk_change_reports_failures(service: BoardService) -> None:
    task = await create(service, "task")
    reply = await run(service, "bulk", tasks=f"{task} t_missing", assignee="ada")
    assert reply.code == 1
    results = msgspec.json.decode(msgspec.json.encode(reply.data))
    assert [one["ok"] for one in results] == [True, False]


async def test_person_answers_a_blocked_task_and_a_task_of_their_own(service: BoardService) -> None:
    blocked, own = await create(service, "one"), await create(service, "two", assignee="@bob")
    await run(service, "block", task=blocked, reason="which color?")
    await run(service, "answer", task=blocked, text="blue")
    shown = await data_of(service, "show", task=blocked)
    assert shown["task"]["status"] == "ready"
    assert shown["comments"][-1]["body"] == "blue"
    await run(service, "answer", task=own, text="it is 42")
    shown = await data_of(service, "show", task=own)
    assert (shown["task"]["status"], shown["task"]["result"]) == ("done", "it is 42")
    with pytest.raises(StateConflict, match="is not waiting for an answer"):
        await run(service, "answer", task=own, text="again")


async def test_diagnostics_list_stuck_tasks(service: BoardService) -> None:
    unassigned = await create(service, "nobody")
    gone = await create(service, "gone", assignee="ada")
    await service.write(None, lambda rows: rows.change_task(gone, TaskChange(assignee="ghost")))
    await create(service, "fine", assignee="ada")
    found = await data_of(service, "diagnostics")
    kinds = {one["task_id"]: one["kind"] for one in found}
    assert kinds == {gone: "unknown_profile", unassigned: "no_assignee"}
    (worst,) = await data_of(service, "diagnostics", severity="error")
    assert worst["task_id"] == gone


async def test_model_specifies_and_splits_a_task(service: BoardService, agents: NoAgents) -> None:
    task = await create(service, "site", triage=True)
    agents.answers.append('Here: {"title": "Build the site", "body": "Two pages."}')
    await run(service, "specify", task=task)
    found = (await data_of(service, "show", task=task))["task"]
    assert (found["title"], found["status"]) == ("Build the site", "ready")
    plan = [
        {"title": "draw", "assignee": "eve"},
        {"title": "write", "assignee": "nobody", "after": [0, 5]},
    ]
    agents.answers.append(msgspec.json.encode({"tasks": plan}).decode())
    service.settings.describe("default", ProfileDescription("writes\npoems"))
    await run(service, "decompose", task=task)
    assert agents.asked[-1].startswith("Profiles:\n- default: writes poems\n- ada\n- eve\n\n")
    shown = await data_of(service, "show", task=task)
    draw, write = [await data_of(service, "show", task=one) for one in shown["parents"]]
    assert shown["task"]["status"] == "todo"
    assert (draw["task"]["assignee"], draw["task"]["status"]) == ("eve", "ready")
    assert (write["task"]["assignee"], write["parents"]) == ("default", [draw["task"]["id"]])
    agents.answers.append("I would rather not.")
    with pytest.raises(ModelError):
        await run(service, "specify", task=task)


def test_board_may_be_named_before_the_action() -> None:
    assert action_first(VERB, ["--board", "work", "list"]) == ["list", "--board", "work"]
    assert action_first(VERB, ["--board=work", "list", "--mine"]) == [
        "list",
        "--mine",
        "--board=work",
    ]
    parser = ArgumentParser()
    add_verb("kanban", parser)
    parsed = parser.parse_args(["--board", "work", "list"])
    assert (parsed.board, parsed.before_board) == (None, "work")


async def test_copies_that_nothing_names_are_deleted_after_a_day(
    service: BoardService, tmp_path: Path, clock: FakeClock
) -> None:
    task = await create(service, "task")
    (tmp_path / "plan.txt").write_text("plan")
    await run(service, "attach", task=task, path="plan.txt", folder=str(tmp_path))
    folder = tmp_path / "kanban/attachments" / task
    (folder / "left.txt").write_text("left")
    (folder / "new.txt").write_text("new")
    for name, age in {"plan.txt": 90_000, "left.txt": 90_000, "new.txt": 0}.items():
        at = service.now() - age
        os.utime(folder / name, (at, at))
    await run(service, "gc")
    assert {one.name for one in folder.iterdir()} == {"plan.txt", "new.txt"}


def person(values: dict[str, Any], principal: str, chat: str = "5") -> ActionCall:
    scope = Scope(
        "default", "s1", "", "", principal=principal, role=Role.MEMBER,
        address=Address("telegram", chat), asker=Requester(name="the owner"),
    )  # fmt: skip
    return ActionCall(values=values, scope=scope)


async def test_other_people_answer_their_own_tasks_and_no_others(service: BoardService) -> None:
    people = "eve=telegram:42,eve=slack:U1,bob=telegram:-100"
    await run(service, "boards", what="set-people", slug="default", value=people)
    mine = await create(service, "choose a color", assignee="@eve")
    other = await create(service, "choose a name", assignee="@bob")
    answer = VERB.find("answer")
    for task in (other, "t_missing", f"{mine} {other}"):
        with pytest.raises(UsageError, match="no such task of yours"):
            await answer.run(service, person({"task": task, "text": "red"}, "telegram:42"))
    with pytest.raises(UsageError, match="no such task of yours"):
        await answer.run(service, person({"task": mine, "text": "red"}, "telegram:43"))
    assert (
        "choose a color"
        in (await VERB.find("show").run(service, person({"task": mine}, "slack:U1"))).text
    )
    arguments = {"task": mine, "text": "red", "author": "owner"}
    reply = await answer.run(service, person(arguments, "telegram:42"))
    assert "done" in reply.text
    in_chat = person({"task": other, "text": "Ann"}, "telegram:77", chat="-100")
    assert "done" in (await answer.run(service, in_chat)).text
    assert {one.name for one in VERB.actions if one.for_others} == {
        "answer", "show", "request-changes",
    }  # fmt: skip


async def test_answer_of_another_person_has_their_name(service: BoardService) -> None:
    await run(service, "boards", what="set-people", slug="default", value="eve=telegram:42")
    task = await create(service, "choose a color", assignee="@eve")
    await run(service, "block", task=task, reason="which?")
    arguments = {"task": task, "text": "red", "author": "owner"}
    await VERB.find("answer").run(service, person(arguments, "telegram:42"))
    comments = await service.read(None, lambda rows: rows.comments(task))
    assert comments[-1].author == "@eve"


async def test_subscription_to_a_platform_that_no_profile_has_is_refused(
    service: BoardService,
) -> None:
    task = await create(service, "task")
    with pytest.raises(UsageError) as refused:
        await run(service, "notify-subscribe", task=task, platform="telegrm", chat_id="1")
    assert "telegram" in refused.value.hint
    await run(service, "notify-subscribe", task=task, platform="telegram", chat_id="1")
    assert len((await run(service, "notify-list")).data) == 1  # type: ignore[arg-type]


async def test_chosen_model_is_an_event_of_its_own(service: BoardService) -> None:
    task = await create(service, "task")
    await run(service, "set-model", task=task, model="big", provider="openai")
    events = await data_of(service, "tail", task=task, limit=10)
    found = [one["payload"] for one in events if one["kind"] == "model_override_set"]
    assert found == [{"model": "big", "provider": "openai"}]
