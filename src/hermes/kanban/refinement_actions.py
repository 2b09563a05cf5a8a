"""`hermes kanban` and `/kanban`: plan tasks with a model, and find those that are stuck."""

from collections.abc import Sequence

from hermes.kanban.arguments import SWITCH, board_action, flag
from hermes.kanban.presentation import task_line, task_object
from hermes.kanban.service import BoardService
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument
from hermes.schema.board import Task
from hermes.schema.errors import UsageError


async def specify_tasks(service: BoardService, call: ActionCall) -> ActionReply:
    from hermes.kanban.refinement import specify  # noqa: PLC0415 - help and completion do without

    board, tasks = await _chosen_tasks(service, call)
    author = call.text("author") or service.profile
    done = [await specify(service, board, task, author) for task in tasks]
    text = "\n".join(map(task_line, done)) or "No task is in triage."
    return ActionReply(text, [task_object(task) for task in done])


async def decompose_tasks(service: BoardService, call: ActionCall) -> ActionReply:
    from hermes.kanban.refinement import decompose  # noqa: PLC0415 - as above

    board, tasks = await _chosen_tasks(service, call)
    author = call.text("author") or service.profile
    lines: list[str] = []
    found: list[object] = []
    for task in tasks:
        root, made = await decompose(service, board, task, author)
        lines += [task_line(root), *(f"  {task_line(one)}" for one in made)]
        found.append({"task": task_object(root), "child_ids": [one.id for one in made]})
    return ActionReply("\n".join(lines) or "No task is in triage.", found)


async def _chosen_tasks(service: BoardService, call: ActionCall) -> tuple[str, Sequence[Task]]:
    from hermes.kanban.refinement import tasks_to_plan  # noqa: PLC0415 - as above

    task = call.text("task")
    if bool(task) == call.switch("all"):
        raise UsageError("Name a task, or use --all for all tasks in triage.")
    board = service.boards.choose(call.text("board") or None)
    return board, await tasks_to_plan(service, board, task, tenant=call.text("tenant") or None)


async def diagnostics(service: BoardService, call: ActionCall) -> ActionReply:
    from hermes.kanban.diagnostics import (  # noqa: PLC0415 - as above
        Problem,
        Severity,
        find_problems,
    )

    least = Severity[(call.text("severity") or "info").upper()]
    profiles = service.profiles()

    def work(rows: BoardRows) -> list[Problem]:
        found = find_problems(rows, service.now(), profiles, call.text("task") or None)
        return [problem for problem in found if problem.severity >= least]

    board = call.text("board") or None
    found = await service.read(board, work)
    parked = [
        f"warning  {task}  {platform}:{chat} is not notified: {problem}"
        for (task, platform, chat, _), problem in (await service.problems(board)).items()
        if problem and least <= Severity.WARNING and call.text("task") in {"", task}
    ]
    text = "\n".join([*(problem.line for problem in found), *parked]) or "No task needs attention."
    return ActionReply(text, [problem.as_object() for problem in found])


_PLANNED = (
    Argument(name="task", help="the id of the task"),
    flag("--all", "all tasks in triage", SWITCH),
    flag("--tenant", "with --all, only tasks of this group"),
    flag("--author", "author of the plan"),
)

REFINEMENT_ACTIONS: tuple[Action[BoardService], ...] = (
    board_action(
        "specify", "let the model turn a rough idea into a task", specify_tasks, *_PLANNED
    ),
    board_action(
        "decompose", "let the model split a task into smaller ones", decompose_tasks, *_PLANNED
    ),
    board_action(
        "diagnostics",
        "list tasks that need attention",
        diagnostics,
        Argument(
            name="--severity",
            help="at least this severity",
            choices=("info", "warning", "error"),
        ),
        flag("--task", "only this task"),
    ),
)
