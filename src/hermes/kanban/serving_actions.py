"""`hermes kanban`: the actions of processes that work on tasks, or watch a board."""

from hermes.kanban.arguments import NUMBER, SWITCH, TASK, board_action, flag
from hermes.kanban.presentation import event_line
from hermes.kanban.service import BoardService, DispatchReport, ServeOptions
from hermes.kanban.worker import Worker
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument
from hermes.schema.board import TaskEvent
from hermes.schema.errors import UsageError

MAX_EVENTS = 500


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
