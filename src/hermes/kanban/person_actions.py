"""`hermes kanban` and `/kanban`: what people do besides working on tasks."""

from msgspec import UNSET

from hermes.kanban.answers import answer_task
from hermes.kanban.arguments import NUMBER, SWITCH, TASK, TASKS, board_action, flag, task_ids
from hermes.kanban.lifecycle import Completion
from hermes.kanban.people import author_of, for_assignees
from hermes.kanban.presentation import task_line, task_object
from hermes.kanban.reviews import request_review
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.kanban.undo import remember_change, undo_change
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind
from hermes.schema.board import Task
from hermes.schema.errors import UsageError

_BULK_STATUSES = ("ready", "blocked", "scheduled", "done", "archived")


async def answer(service: BoardService, call: ActionCall) -> ActionReply:
    author = author_of(service, call)
    task_id, text = call.text("task"), call.text("text")

    def work(rows: BoardRows) -> Task:
        before = find_task(rows, task_id)
        task = answer_task(rows, task_id, text, author, service.now())
        remember_change(rows, before, "answer", service.now())
        return task

    task = await service.write(call.text("board") or None, work)
    return ActionReply(task_line(task), task_object(task))


async def undo(service: BoardService, call: ActionCall) -> ActionReply:
    task = await service.write(
        call.text("board") or None,
        lambda rows: undo_change(rows, call.text("task"), service.now()),
    )
    return ActionReply(task_line(task), task_object(task))


async def bulk(service: BoardService, call: ActionCall) -> ActionReply:
    from hermes.kanban.bulk import BulkBody, change_tasks  # noqa: PLC0415 - help does without

    assignee = call.text("assignee")
    body = BulkBody(
        ids=task_ids(call),
        status=call.text("status") or UNSET,
        assignee=(None if assignee == "none" else assignee) if assignee else UNSET,
        priority=call.number("priority", 0) if call.given("priority") else UNSET,
        tenant=call.text("tenant") or UNSET,
        archive=call.switch("archive"),
        reclaim_first=call.switch("reclaim_first"),
        reason=call.text("reason"),
    )
    results = await change_tasks(service, call.text("board") or None, body)
    lines = [
        task_line(result.task) if result.task else f"✖ {result.id}  {result.error}"
        for result in results
    ]
    failed = any(result.error for result in results)
    return ActionReply(
        "\n".join(lines), [result.as_object() for result in results], code=int(failed)
    )


async def ask_review(service: BoardService, call: ActionCall) -> ActionReply:
    reviewer, task_id = call.text("reviewer") or None, call.text("task")
    service.check_assignee(reviewer)
    if not call.text("summary"):
        raise UsageError("Say what was done: --summary TEXT")
    done = Completion(summary=call.text("summary"))
    task = await service.write(
        call.text("board") or None,
        lambda rows: request_review(rows, task_id, done, service.now(), reviewer=reviewer),
    )
    return ActionReply(task_line(task), task_object(task))


PERSON_ACTIONS: tuple[Action[BoardService], ...] = (
    for_assignees(
        board_action(
            "answer",
            "answer a task that waits for a person",
            answer,
            TASK,
            Argument(name="text", help="the answer", kind=ArgumentKind.WORDS, required=True),
            flag("--author", "author of the answer"),
        )
    ),
    board_action("undo", "undo the last change made by hand", undo, TASK),
    board_action(
        "bulk",
        "change several tasks; one failure does not stop the others",
        bulk,
        TASKS,
        Argument(name="--status", help="the new status", choices=_BULK_STATUSES),
        flag("--assignee", "a profile, @name or none"),
        flag("--priority", "higher comes first", NUMBER),
        flag("--tenant", "a group of tasks"),
        flag("--archive", "hide them", SWITCH),
        flag("--reclaim-first", "take running tasks back first", SWITCH),
        flag("--reason", "why"),
    ),
    board_action(
        "request-review",
        "hand running work to a reviewer",
        ask_review,
        TASK,
        flag("--summary", "what was done"),
        flag("--reviewer", "another profile, or a person as @name; by default the owner"),
    ),
)
