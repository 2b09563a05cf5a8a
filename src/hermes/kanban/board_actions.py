"""`hermes kanban` and `/kanban`: the actions on boards, files and subscriptions."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from hermes.kanban.arguments import LIST, NUMBER, SWITCH, TASK, board_action, flag
from hermes.kanban.attachments import attach_file, remove_attachment, remove_unnamed_files
from hermes.kanban.boards import Access, BoardInfo
from hermes.kanban.context import age
from hermes.kanban.presentation import UNASSIGNED, attachment_object, board_stats
from hermes.kanban.service import BoardService
from hermes.kanban.swarm import Swarm, SwarmTasks, create_swarm, read_worker
from hermes.kanban.tasks import WHOLE_BOARD, find_task, subscribe
from hermes.kit.text import plural
from hermes.ports.board import BoardRows
from hermes.ports.feature import Action, ActionCall, ActionReply, Argument, ArgumentKind
from hermes.schema.board import Attachment, BoardSubscription, TaskFilter, TaskStatus
from hermes.schema.errors import NotFound, UsageError

BOARD_VERBS = (
    "list", "create", "rm", "switch", "show", "rename", "set-default-workdir",
    "set-access", "set-people",
)  # fmt: skip
DAY = 86_400


async def init(service: BoardService, call: ActionCall) -> ActionReply:
    slug = service.boards.choose(call.text("board") or None)
    await service.read(slug, lambda rows: rows.last_event_id())
    path = str(service.boards.paths(slug).database)
    return ActionReply(f"The board {slug} is ready: {path}", {"board": slug, "db_path": path})


async def boards(service: BoardService, call: ActionCall) -> ActionReply:
    slug = call.text("slug")
    match call.text("what") or "list":
        case "list":
            return await _list_boards(service, service.boards.all())
        case "show":
            chosen = service.boards.choose(slug or None)
            return await _list_boards(service, [service.boards.info(chosen)])
        case "create":
            return _create_board(service, call)
        case "switch":
            service.boards.switch(slug)
            return ActionReply(f"{slug} is now the current board.")
        case "rm":
            folder = service.boards.remove(slug, service.now(), delete=call.switch("delete"))
            text = f"Archived {slug}: {folder}" if folder else f"Deleted {slug}."
            return ActionReply(text)
        case "rename":
            info = structs.replace(service.boards.info(slug), name=call.text("value"))
        case "set-access":
            access = _read_access(service, call.text("value"))
            info = structs.replace(service.boards.info(slug), access=access)
        case "set-people":
            people = _read_people(call.text("value"))
            info = structs.replace(service.boards.info(slug), people=people)
        case _:
            workdir = call.text("value") or None
            info = structs.replace(service.boards.info(slug), default_workdir=workdir)
    return ActionReply(f"Changed {service.boards.save(info).slug}.", info)


def _read_access(service: BoardService, text: str) -> dict[str, Access]:
    """`ada=write,eve=read`; `all` lets every profile do everything."""
    found: dict[str, Access] = {}
    for part in () if text == "all" else text.split(","):
        profile, _, access = part.partition("=")
        if profile not in service.profiles() or access not in set(Access):
            raise UsageError(
                f"{part!r} is not an access rule.",
                hint="Write PROFILE=read or PROFILE=write, or all.",
            )
        found[profile] = Access(access)
    return found


def _read_people(text: str) -> dict[str, tuple[str, ...]]:
    """`ada=telegram:123,eve=slack:U1`, a name again for another account; `none` removes all."""
    found: dict[str, tuple[str, ...]] = {}
    for part in () if text == "none" else text.split(","):
        name, _, account = part.strip().removeprefix("@").partition("=")
        platform, _, user = account.partition(":")
        if not (name and platform and user):
            raise UsageError(
                f"{part!r} is not a person.", hint="Write NAME=PLATFORM:USER, or none."
            )
        found[name] = (*found.get(name, ()), account)
    return found


def _create_board(service: BoardService, call: ActionCall) -> ActionReply:
    info = BoardInfo(
        slug=call.text("slug"),
        name=call.text("name") or call.text("slug"),
        description=call.text("description"),
        icon=call.text("icon"),
        color=call.text("color"),
        default_workdir=call.text("default_workdir") or None,
        created_at=service.now(),
    )
    created = service.boards.create(info)
    if call.switch("switch"):
        service.boards.switch(created.slug)
    return ActionReply(f"Created the board {created.slug}.", created)


async def _list_boards(service: BoardService, found: Sequence[BoardInfo]) -> ActionReply:
    current = service.boards.choose()
    lines: list[str] = []
    objects: list[object] = []
    names = {
        info.slug: info.slug if info.name == info.slug else f"{info.slug}  {info.name}"
        for info in found
    }
    width = max(map(len, names.values()), default=0)
    for info in found:
        counts = await service.read(info.slug, lambda rows: rows.status_counts())
        total = sum(counts.values()) - counts[TaskStatus.ARCHIVED]
        mark = "*" if info.slug == current else " "
        lines.append(f"{mark} {names[info.slug]:<{width}}  {plural(total, 'task')}")
        objects.append(
            structs.asdict(info)
            | {
                "db_path": str(service.boards.paths(info.slug).database),
                "is_current": info.slug == current,
                "counts": {status.value: count for status, count in counts.items() if count},
                "total": total,
            }
        )
    return ActionReply("\n".join(lines), objects)


async def stats(service: BoardService, call: ActionCall) -> ActionReply:
    tasks = await service.read(
        call.text("board") or None, lambda rows: rows.tasks(TaskFilter(archived=True))
    )
    data = board_stats(tasks, service.now())
    lines = [f"{name:<10} {count}" for name, count in sorted(data.by_status.items())]
    people = {
        "not assigned" if name == UNASSIGNED else f"@{name.lstrip('@')}": count
        for name, count in sorted(data.by_assignee.items())
    }
    width = max(map(len, people), default=0)
    lines += ["", *(f"{name:<{width}}  {count}" for name, count in people.items())]
    if (oldest := data.oldest_ready_age_seconds) is not None:
        lines += ["", f"The oldest ready task has waited {age(oldest)}."]
    return ActionReply("\n".join(lines) if tasks else "The board is empty.", data)


async def assignees(service: BoardService, call: ActionCall) -> ActionReply:
    running = await service.read(
        call.text("board") or None, lambda rows: rows.running_by_assignee()
    )
    names = sorted({*service.profiles(), *running})
    text = "\n".join(f"{name:<16} {plural(running.get(name, 0), 'running task')}" for name in names)
    return ActionReply(text, [{"name": name, "running": running.get(name, 0)} for name in names])


async def attach(service: BoardService, call: ActionCall) -> ActionReply:
    added = await attach_file(
        service,
        call.text("board") or None,
        call.text("task"),
        Path(call.folder, call.text("path")),
        name=call.text("name"),
        content_type=call.text("content_type"),
        author=call.text("author"),
    )
    text = f"Attached {added.filename} as {added.id} ({added.size:,} bytes)."
    return ActionReply(text, attachment_object(added))


async def attachments(service: BoardService, call: ActionCall) -> ActionReply:
    def work(rows: BoardRows) -> Sequence[Attachment]:
        return rows.attachments(find_task(rows, call.text("task")).id)

    found = await service.read(call.text("board") or None, work)
    lines = [
        f"{attachment.id}  {attachment.filename}  {attachment.size:,} bytes  "
        f"{attachment.stored_path}"
        for attachment in found
    ]
    text = "\n".join(lines) or "There are no files."
    return ActionReply(text, [attachment_object(attachment) for attachment in found])


async def detach(service: BoardService, call: ActionCall) -> ActionReply:
    number = call.number("attachment", 0)
    removed = await remove_attachment(service, call.text("board") or None, number)
    return ActionReply(f"Removed {removed.filename} from {removed.task_id}.")


async def notify_subscribe(service: BoardService, call: ActionCall) -> ActionReply:
    subscription = BoardSubscription(
        task_id=call.text("task"),
        platform=call.text("platform"),
        chat_id=call.text("chat_id"),
        thread_id=call.text("thread_id"),
        user_id=call.text("user_id") or None,
        notifier_profile=call.text("notifier_profile") or service.profile,
        chat_type=call.text("chat_type") or None,
    )
    if subscription.notifier_profile not in service.profiles():
        raise UsageError(f"There is no profile {subscription.notifier_profile!r}.")
    service.check_address(subscription.platform)
    new = await service.write(
        call.text("board") or None, lambda rows: subscribe(rows, subscription, service.now())
    )
    return ActionReply("Subscribed." if new else "That chat is already subscribed.")


async def notify_list(service: BoardService, call: ActionCall) -> ActionReply:
    task = call.text("task") or None
    found = await service.read(call.text("board") or None, lambda rows: rows.subscriptions(task))
    problems = await service.problems(call.text("board") or None)
    lines = [
        "  ".join(
            filter(
                None,
                [
                    subscription.task_id,
                    ":".join(
                        filter(
                            None,
                            (subscription.platform, subscription.chat_id, subscription.thread_id),
                        )
                    ),
                    f"by {subscription.notifier_profile or '-'}",
                    problems.get(
                        (
                            subscription.task_id,
                            subscription.platform,
                            subscription.chat_id,
                            subscription.thread_id,
                        ),
                        "",
                    ),
                ],
            )
        )
        for subscription in found
    ]
    return ActionReply("\n".join(lines) or "There are no subscriptions.", found)


async def notify_unsubscribe(service: BoardService, call: ActionCall) -> ActionReply:
    key = tuple(call.text(name) for name in ("task", "platform", "chat_id", "thread_id"))
    removed = await service.write(
        call.text("board") or None, lambda rows: rows.remove_subscription(*key)
    )
    if not removed:
        raise NotFound("There is no such subscription.")
    return ActionReply("Unsubscribed.")


async def plan_swarm(service: BoardService, call: ActionCall) -> ActionReply:
    swarm = Swarm(
        goal=call.text("goal"),
        workers=tuple(read_worker(text) for text in call.texts("worker")),
        verifier=call.text("verifier"),
        synthesizer=call.text("synthesizer"),
        tenant=call.text("tenant") or None,
        priority=call.number("priority", 0),
        created_by=call.text("created_by") or service.profile,
        idempotency_key=call.text("idempotency_key") or None,
    )
    for profile in (
        swarm.verifier,
        swarm.synthesizer,
        *(worker.profile for worker in swarm.workers),
    ):
        service.check_assignee(profile)

    def work(rows: BoardRows) -> SwarmTasks:
        return create_swarm(rows, swarm, service.now())

    planned = await service.write(call.text("board") or None, work)
    text = (
        f"Planned {plural(len(planned.worker_ids), 'worker')} under {planned.root_id}; "
        f"{planned.verifier_id} verifies, {planned.synthesizer_id} summarizes."
    )
    return ActionReply(text, planned)


async def gc(service: BoardService, call: ActionCall) -> ActionReply:
    """Delete old events of finished tasks, old logs, and copies that a killed worker left."""
    slug = service.boards.choose(call.text("board") or None)
    now = service.now()
    before = now - call.number("event_retention_days", 30) * DAY
    events = await service.write(slug, lambda rows: rows.delete_events(before))
    oldest = now - call.number("log_retention_days", 30) * DAY
    logs = [
        path
        for path in service.boards.paths(slug).logs.glob("*.log*")
        if path.stat().st_mtime < oldest
    ]
    for path in logs:
        path.unlink(missing_ok=True)
    files = await remove_unnamed_files(service, slug, now - DAY)
    counts = (plural(events, "event"), plural(len(logs), "log"), plural(files, "unused file"))
    text = f"Deleted {counts[0]}, {counts[1]} and {counts[2]}."
    return ActionReply(text, {"events": events, "logs": len(logs), "files": files})


_ADDRESS = (
    Argument(name="--platform", help="the platform of the chat", required=True),
    Argument(name="--chat-id", help="the id of the chat", required=True),
    flag("--thread-id", "the thread in the chat"),
)
_SUBJECT = Argument(
    name="task", help=f"the id of the task, or {WHOLE_BOARD} for the whole board", required=True
)

BOARD_ACTIONS: tuple[Action[BoardService], ...] = (
    board_action("init", "create the board's database", init),
    Action(
        name="boards",
        summary="list, create, switch, rename and remove boards",
        run=boards,
        arguments=(
            Argument(name="what", help="action", choices=BOARD_VERBS),
            Argument(name="slug", help="the board"),
            Argument(
                name="value",
                help="new name, folder, access (ada=write) or people (eve=telegram:42)",
            ),
            flag("--name", "the displayed name"),
            flag("--description", "what the board is for"),
            flag("--icon", "an emoji"),
            flag("--color", "a color"),
            flag("--switch", "make it the current board", SWITCH),
            flag("--default-workdir", "the folder of its tasks"),
            flag("--delete", "delete it instead of archiving it", SWITCH),
        ),
    ),
    board_action("stats", "count tasks", stats),
    board_action("assignees", "list profiles and people who can work on tasks", assignees),
    board_action(
        "attach",
        "attach a file to a task",
        attach,
        TASK,
        Argument(name="path", help="the file", required=True),
        flag("--name", "name to use instead of the file's"),
        flag("--content-type", "its media type"),
        flag("--author", "author of the attachment"),
    ),
    board_action("attachments", "list the files of a task", attachments, TASK),
    board_action(
        "attach-rm",
        "remove a file",
        detach,
        Argument(
            name="attachment",
            help="number of the file, as listed by attachments",
            kind=NUMBER,
            required=True,
        ),
    ),
    board_action(
        "notify-subscribe",
        "notify a chat about a task's events",
        notify_subscribe,
        _SUBJECT,
        *_ADDRESS,
        flag("--user-id", "user id to store with the subscription"),
        flag("--notifier-profile", "the profile whose bot sends"),
        flag("--chat-type", "kind of chat: dm or group"),
    ),
    board_action(
        "notify-list",
        "list subscriptions",
        notify_list,
        Argument(name="task", help="the id of the task"),
    ),
    board_action(
        "notify-unsubscribe", "remove a subscription", notify_unsubscribe, _SUBJECT, *_ADDRESS
    ),
    board_action(
        "swarm",
        "plan parallel workers, a verifier and a synthesizer",
        plan_swarm,
        Argument(name="goal", help="the goal", kind=ArgumentKind.WORDS, required=True),
        Argument(name="--worker", help="PROFILE:TITLE[:SKILL,…]", kind=LIST, required=True),
        Argument(name="--verifier", help="the profile that verifies", required=True),
        Argument(name="--synthesizer", help="the profile that summarizes", required=True),
        flag("--tenant", "a group of tasks"),
        flag("--priority", "higher comes first", NUMBER),
        flag("--created-by", "author of the request"),
        flag("--idempotency-key", "repeat the command without planning twice"),
    ),
    board_action(
        "gc",
        "delete old events and logs",
        gc,
        flag("--event-retention-days", "days to keep events", NUMBER),
        flag("--log-retention-days", "days to keep logs", NUMBER),
    ),
)
