"""`hermes kanban` and `/kanban`: the actions that show tasks."""

from collections.abc import Sequence

from msgspec import structs

from hermes.kanban.arguments import NUMBER, SWITCH, TASK, board_action, flag, read_status
from hermes.kanban.context import worker_context
from hermes.kanban.people import for_assignees
from hermes.kanban.presentation import (
    details_object,
    details_text,
    event_line,
    event_object,
    run_line,
    run_object,
    task_list,
    task_object,
)
from hermes.kanban.service import BoardService, TaskDetails, task_details
from hermes.kanban.tasks import find_task
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument
from hermes.schema.board import TaskEvent, TaskFilter, TaskRun
from hermes.schema.errors import NotFound

SORTS = (
    "assignee", "created", "created-desc", "priority", "priority-desc", "status", "title",
    "updated",
)  # fmt: skip


async def list_tasks(service: BoardService, call: ActionCall) -> ActionReply:
    status = call.text("status")
    wanted = TaskFilter(
        statuses=(read_status(status),) if status else (),
        archived=call.switch("archived"),
        assignee=service.profile if call.switch("mine") else call.text("assignee") or None,
        tenant=call.text("tenant") or None,
        session_id=call.text("session") or None,
        workflow_template_id=call.text("workflow_template_id") or None,
        step_key=call.text("step_key") or None,
        sort=call.text("sort") or "priority-desc",
    )
    tasks = await service.read(call.text("board") or None, lambda rows: rows.tasks(wanted))
    return ActionReply(task_list(tasks), [task_object(task) for task in tasks])


async def show(service: BoardService, call: ActionCall) -> ActionReply:
    def work(rows: BoardRows) -> TaskDetails:
        details = task_details(rows, find_task(rows, call.text("task")))
        return structs.replace(details, runs=_chosen_runs(call, details.runs))

    details = await service.read(call.text("board") or None, work)
    return ActionReply(details_text(details, service.now()), details_object(details))


async def show_context(service: BoardService, call: ActionCall) -> ActionReply:
    def work(rows: BoardRows) -> str:
        details = task_details(rows, find_task(rows, call.text("task")))
        return worker_context(rows, details, service.now())

    text = await service.read(call.text("board") or None, work)
    return ActionReply(text, {"context": text})


async def list_runs(service: BoardService, call: ActionCall) -> ActionReply:
    def work(rows: BoardRows) -> Sequence[TaskRun]:
        return rows.runs(find_task(rows, call.text("task")).id)

    runs = await service.read(call.text("board") or None, work)
    chosen = _chosen_runs(call, runs)
    text = "\n".join(run_line(run, service.now()) for run in chosen) or "No matching runs."
    return ActionReply(text, [run_object(run) for run in chosen])


def _chosen_runs(call: ActionCall, runs: Sequence[TaskRun]) -> list[TaskRun]:
    kind, name = call.text("state_type") or "status", call.text("state_name")
    return [run for run in runs if not name or getattr(run, kind) == name]


async def tail(service: BoardService, call: ActionCall) -> ActionReply:
    limit = call.number("limit", 20)

    def work(rows: BoardRows) -> Sequence[TaskEvent]:
        if task_id := call.text("task"):
            return rows.events(find_task(rows, task_id).id, limit)
        return rows.events_after(max(rows.last_event_id() - limit, 0), limit)

    events = await service.read(call.text("board") or None, work)
    text = "\n".join(map(event_line, events)) or "Nothing has happened yet."
    return ActionReply(text, [event_object(event) for event in events])


async def read_log(service: BoardService, call: ActionCall) -> ActionReply:
    """Workers that are processes have logs; those in the gateway are sessions."""
    slug = service.boards.choose(call.text("board") or None)
    task = await service.read(slug, lambda rows: find_task(rows, call.text("task")))
    path = service.boards.paths(slug).logs / f"{task.id}.log"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise NotFound(
            f"There is no log for {task.id}.",
            hint=f"Workers in the gateway log to sessions: hermes sessions list, for {task.id}.",
        ) from None
    lines = text.splitlines()[-call.number("lines", 200) :]
    return ActionReply("\n".join(lines), {"path": str(path), "lines": lines})


_LIST_FLAGS = (
    flag("--mine", "only tasks of this profile", SWITCH),
    flag("--assignee", "only tasks of this assignee"),
    flag("--status", "only tasks with this status"),
    flag("--tenant", "only tasks of this group"),
    flag("--session", "only tasks that this session created"),
    flag("--archived", "include archived tasks", SWITCH),
    Argument(name="--sort", help="sort by this field", choices=SORTS),
    flag("--workflow-template-id", "only tasks of this workflow"),
    flag("--step-key", "only tasks at this step"),
)
_RUN_FILTER = (
    Argument(name="--state-type", help="what --state-name means", choices=("status", "outcome")),
    flag("--state-name", "only runs in this state"),
)


VIEW_ACTIONS: tuple[Action[BoardService], ...] = (
    board_action("list", "list tasks", list_tasks, *_LIST_FLAGS, aliases=("ls",)),
    for_assignees(
        board_action("show", "show a task with its runs and comments", show, TASK, *_RUN_FILTER)
    ),
    board_action("context", "print a task as its worker sees it", show_context, TASK),
    board_action("runs", "list the runs of a task", list_runs, TASK, *_RUN_FILTER),
    board_action(
        "tail",
        "print the last events of a task or of the board",
        tail,
        Argument(name="task", help="the id of the task"),
        flag("--limit", "how many events to print", NUMBER),
    ),
    board_action(
        "log",
        "print the log of a task's worker process",
        read_log,
        TASK,
        flag("--lines", "how many lines to print", NUMBER),
    ),
)
