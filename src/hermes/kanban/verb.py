"""`hermes kanban` and `/kanban`: the verb, and the actions of people, planners and processes."""

from collections.abc import Sequence

from msgspec import UNSET

from hermes.kanban.answers import answer_task
from hermes.kanban.arguments import BOARD, NUMBER, SWITCH, TASK, TASKS, board_action, flag, task_ids
from hermes.kanban.board_actions import BOARD_ACTIONS
from hermes.kanban.lifecycle import Completion
from hermes.kanban.people import author_of, for_assignees
from hermes.kanban.presentation import event_line, task_line, task_object
from hermes.kanban.reviews import request_review
from hermes.kanban.service import BoardService, DispatchReport, ServeOptions
from hermes.kanban.task_actions import CHANGE_ACTIONS
from hermes.kanban.tasks import find_task
from hermes.kanban.undo import remember_change, undo_change
from hermes.kanban.view_actions import VIEW_ACTIONS
from hermes.kanban.worker import Worker
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind, Verb
from hermes.schema.board import Task, TaskEvent
from hermes.schema.errors import UsageError

_BULK_STATUSES = ("ready", "blocked", "scheduled", "done", "archived")
_PLANNED = (
    Argument(name="task", help="the id of the task"),
    flag("--all", "all tasks in triage", SWITCH),
    flag("--tenant", "with --all, only tasks of this group"),
    flag("--author", "author of the plan"),
)
MAX_EVENTS = 500


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

    min_severity = Severity[(call.text("severity") or "info").upper()]
    profiles = service.profiles()

    def work(rows: BoardRows) -> list[Problem]:
        found = find_problems(rows, service.now(), profiles, call.text("task") or None)
        return [problem for problem in found if problem.severity >= min_severity]

    board = call.text("board") or None
    found = await service.read(board, work)
    parked = [
        f"warning  {task}  {platform}:{chat} is not notified: {problem}"
        for (task, platform, chat, _), problem in (await service.problems(board)).items()
        if problem and min_severity <= Severity.WARNING and call.text("task") in {"", task}
    ]
    text = "\n".join([*(problem.line for problem in found), *parked]) or "No task needs attention."
    return ActionReply(text, [problem.as_object() for problem in found])


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


async def work(service: BoardService, call: ActionCall) -> ActionReply:
    """Started by a dispatcher that has claimed the task for this profile."""
    board = service.boards.choose(call.text("board") or None)
    worker = Worker(board, call.text("task"), call.number("run", 0))
    await service.agents.work(worker)
    return ActionReply(f"The worker of {worker.task} has ended.")


async def dispatch(service: BoardService, call: ActionCall) -> ActionReply:
    """Start what is ready, wait for it, and say what happened."""
    chosen = call.text("board")
    names = [chosen] if chosen else [info.slug for info in service.boards.all()]
    dry_run = call.switch("dry_run")
    chosen_boards = [service.boards.choose(name) for name in names]
    options = ServeOptions(
        max_workers=call.number("max", 0) or None,
        failure_limit=call.number("failure_limit", 0) or None,
    )
    reports = await service.agents.dispatch(chosen_boards, options, dry_run=dry_run)
    word = "would be started" if dry_run else "ran"
    lines = [line for report in reports for line in _lines(report, word)]
    return ActionReply("\n".join(lines) or "Nothing is ready.", reports)


def _lines(report: DispatchReport, started: str) -> list[str]:
    return [
        *(f"{one}: {started}" for one in report.started),
        *(f"{one}: its worker is gone" for one in report.ended),
        *(f"{one}: {reason}" for one, reason in report.skipped),
    ]


async def daemon(service: BoardService, call: ActionCall) -> ActionReply:
    """Serve in the foreground, as the gateway does, but without chats."""
    from hermes.kit.files import pid_file  # noqa: PLC0415 - help and completion do without

    def report(done: DispatchReport) -> None:
        for line in _lines(done, "started"):
            call.say(line)

    options = ServeOptions(
        interval=call.number("interval", 0) or None,
        max_workers=call.number("max", 0) or None,
        failure_limit=call.number("failure_limit", 0) or None,
        dispatches=True,
        force=call.switch("force"),
        report=report if call.switch("verbose") else None,
    )
    call.say("Working on the tasks of all boards. Press Ctrl+C to stop.")
    with pid_file(call.text("pidfile")):
        await service.agents.serve(options)
    return ActionReply("Ended.")


async def watch(service: BoardService, call: ActionCall) -> ActionReply:
    """Print events as they happen, until interrupted."""
    if call.scope is not None:
        raise UsageError("This works only on the command line.", hint="Here: /kanban tail")
    board = service.boards.choose(call.text("board") or None)
    last = await service.read(board, lambda rows: rows.last_event_id())
    call.say(f"Watching the board {board}. Press Ctrl+C to stop.")
    while True:
        signature = service.boards.signature()
        events = await service.read(
            board, lambda rows, last=last: rows.events_after(last, MAX_EVENTS)
        )
        for event in events:
            last = event.id
            if await _is_wanted(service, board, call, event):
                call.say(event_line(event))
        while not events and service.boards.signature() == signature:
            await service.pause(call.number("interval", 1))


async def _is_wanted(service: BoardService, board: str, call: ActionCall, event: TaskEvent) -> bool:
    kinds = call.text("kinds").replace(",", " ").split()
    if kinds and event.kind not in kinds:
        return False
    wanted = {name: call.text(name) for name in ("assignee", "tenant") if call.text(name)}
    if not wanted:
        return True
    task = await service.read(board, lambda rows: rows.task(event.task_id))
    return task is not None and all(getattr(task, name) == one for name, one in wanted.items())


SERVING_ACTIONS: tuple[Action[BoardService], ...] = (
    board_action(
        "dispatch",
        "run the ready tasks of this profile now",
        dispatch,
        flag("--dry-run", "only show what would be started", SWITCH),
        flag("--max", "maximum number of tasks at the same time", NUMBER),
        flag("--failure-limit", "give up after this many failures in a row", NUMBER),
    ),
    Action(
        name="daemon",
        summary="work on tasks without a gateway, until interrupted",
        run=daemon,
        arguments=(
            flag("--interval", "seconds between checks of running tasks", NUMBER),
            flag("--max", "maximum number of tasks at the same time", NUMBER),
            flag("--failure-limit", "give up after this many failures in a row", NUMBER),
            flag("--pidfile", "write the process id to this file"),
            flag("--verbose", "print which tasks are started, and why others wait", SWITCH),
            flag("--force", "wait if another program is working on the tasks", SWITCH),
        ),
    ),
    board_action(
        "work",
        "run the worker of a claimed task; used by the gateway",
        work,
        TASK,
        Argument(name="--run", help="the run of the claim", kind=NUMBER, required=True),
    ),
    board_action(
        "watch",
        "print events as they happen",
        watch,
        flag("--assignee", "only tasks of this assignee"),
        flag("--tenant", "only tasks of this group"),
        flag("--kinds", "only these kinds of events, separated by commas"),
        flag("--interval", "seconds between checks", NUMBER),
    ),
)

VERB: Verb[BoardService] = Verb(
    name="kanban",
    summary="Manage boards of tasks that agents and people work on.",
    actions=(
        *VIEW_ACTIONS,
        *CHANGE_ACTIONS,
        *PERSON_ACTIONS,
        *REFINEMENT_ACTIONS,
        *BOARD_ACTIONS,
        *SERVING_ACTIONS,
    ),
    default="list",
    options=(BOARD,),
)
