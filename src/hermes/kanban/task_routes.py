"""The board's HTTP routes for a task's runs, files and logs, and the chats that follow it."""

import os
from pathlib import Path

from msgspec import Struct

from hermes.kanban.attachments import attach_bytes, read_attachment, remove_attachment
from hermes.kanban.lifecycle import reclaim_task
from hermes.kanban.presentation import attachment_object, event_object, run_object
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task, subscribe
from hermes.ports.board import BoardRows
from hermes.ports.feature import FileAnswer, RouteRequest
from hermes.schema.board import BoardSubscription, JsonObject, Task, TaskFilter, TaskRun, TaskStatus
from hermes.schema.errors import NotFound, StateConflict, UsageError
from hermes.schema.scope import Address

MAX_LISTED_EVENTS = 200
_WORKER_FIELDS = (
    "profile", "worker_pid", "started_at", "claim_lock", "claim_expires", "last_heartbeat_at",
    "max_runtime_seconds",
)  # fmt: skip


class ReasonBody(Struct, frozen=True, kw_only=True):
    reason: str = ""


async def get_workers(service: BoardService, request: RouteRequest) -> JsonObject:
    """Running tasks with the process and the claim of their workers."""

    def work(rows: BoardRows) -> list[JsonObject]:
        tasks = rows.tasks(TaskFilter(statuses=(TaskStatus.RUNNING,)))
        runs = [(task, rows.run(task.current_run_id)) for task in tasks if task.current_run_id]
        return [_worker_object(task, run) for task, run in runs if run is not None]

    workers = await service.read(request.text("board"), work)
    return {"workers": workers, "count": len(workers), "checked_at": service.now()}


def _worker_object(task: Task, run: TaskRun) -> JsonObject:
    return {
        "run_id": run.id,
        "task_id": task.id,
        "task_title": task.title,
        "task_status": task.status.value,
        "task_assignee": task.assignee,
        **{name: getattr(run, name) for name in _WORKER_FIELDS},
    }


async def get_run(service: BoardService, request: RouteRequest) -> JsonObject:
    return {"run": run_object(await _run(service, request))}


async def _run(service: BoardService, request: RouteRequest) -> TaskRun:
    number = request.path["run"]
    found = None
    if number.isdecimal() and len(number) <= 18:
        found = await service.read(request.text("board"), lambda rows: rows.run(int(number)))
    if found is None:
        raise NotFound(f"There is no run {number}.")
    return found


async def inspect_run(service: BoardService, request: RouteRequest) -> JsonObject:
    """Whether the process of a run's worker lives; a worker in the gateway is the gateway."""
    run = await _run(service, request)
    if run.ended_at is not None:
        return {"run_id": run.id, "alive": False, "reason": "The run has ended."}
    if run.worker_pid is None:
        return {"run_id": run.id, "alive": False, "reason": "The run has no process."}
    alive = os.path.exists(f"/proc/{run.worker_pid}")  # noqa: PTH110, ASYNC240 - no disk is read
    reason = {} if alive else {"reason": "There is no such process on this machine."}
    return {"run_id": run.id, "alive": alive, "pid": run.worker_pid, **reason}


async def terminate_run(service: BoardService, request: RouteRequest) -> JsonObject:
    """Take the task from the worker of a run, which is stopped."""
    body: ReasonBody = request.body
    run, reason = await _run(service, request), body.reason or "terminated on the board"

    def work(rows: BoardRows) -> None:
        task = find_task(rows, run.task_id)
        if task.current_run_id != run.id:
            raise StateConflict(f"The run {run.id} has ended.")
        reclaim_task(rows, task.id, reason, service.now())

    await service.write(request.text("board"), work)
    return {"ok": True, "run_id": run.id, "task_id": run.task_id}


async def get_events(service: BoardService, request: RouteRequest) -> JsonObject:
    """The events after `since`, oldest first; `cursor` is what to ask for next."""
    since = request.query.get("since", "")
    if not since.isdecimal() or len(since) > 18:
        since = "0"
    events = await service.read(
        request.text("board"),
        lambda rows: rows.events_after(int(since), MAX_LISTED_EVENTS),
    )
    shown = [{**event_object(event), "task_id": event.task_id} for event in events]
    return {"events": shown, "cursor": events[-1].id if events else int(since)}


MAX_LOG = 2_000_000
"""Bytes of a log that are returned at once."""


async def list_files(service: BoardService, request: RouteRequest) -> JsonObject:
    def work(rows: BoardRows) -> JsonObject:
        found = rows.attachments(find_task(rows, request.path["task"]).id)
        return {"attachments": [attachment_object(attachment) for attachment in found]}

    return await service.read(request.text("board"), work)


async def upload_file(service: BoardService, request: RouteRequest) -> JsonObject:
    if request.file is None:
        raise UsageError("The request has no file: send a form with the field `file`.")
    made = await attach_bytes(
        service,
        request.text("board"),
        request.path["task"],
        request.file.name,
        request.file.data,
        content_type=request.file.content_type,
        author="api",
    )
    return {"attachment": attachment_object(made)}


async def download_file(service: BoardService, request: RouteRequest) -> FileAnswer:
    found, data = await read_attachment(service, request.text("board"), _number(request))
    return FileAnswer(found.filename, found.content_type or "application/octet-stream", data)


async def delete_file(service: BoardService, request: RouteRequest) -> JsonObject:
    number = _number(request)
    await remove_attachment(service, request.text("board"), number)
    return {"ok": True, "id": number}


async def get_log(service: BoardService, request: RouteRequest) -> JsonObject:
    """The end of the log of the task's worker process; workers in the gateway have none."""
    from anyio.to_thread import run_sync  # noqa: PLC0415 - the command line lists routes without

    board = service.boards.choose(request.text("board"))
    task = await service.read(board, lambda rows: find_task(rows, request.path["task"]))
    path = service.boards.paths(board).logs / f"{task.id}.log"
    wanted = request.query.get("tail", "")
    tail = min(int(wanted), MAX_LOG) if wanted.isdecimal() and int(wanted) else MAX_LOG
    size, content = await run_sync(_read_tail, path, tail)
    return {
        "task_id": task.id,
        "path": str(path),
        "exists": size is not None,
        "size_bytes": size or 0,
        "content": content,
        "truncated": (size or 0) > tail,
    }


def _read_tail(path: Path, tail: int) -> tuple[int | None, str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - tail, 0))
            return size, file.read(tail).decode("utf-8", "replace")
    except FileNotFoundError:
        return None, ""


def _number(request: RouteRequest) -> int:
    text = request.path["attachment"]
    if not text.isdecimal() or len(text) > 18:
        raise NotFound(f"There is no attachment {text}.")
    return int(text)


async def get_home_channels(service: BoardService, request: RouteRequest) -> JsonObject:
    """The home channels, and whether each follows the task `task_id`."""
    homes, task = service.known_chats().homes, request.query.get("task_id", "")

    def work(rows: BoardRows) -> set[tuple[str, str, str]]:
        found = rows.subscriptions(task) if task else ()
        return {
            (subscription.platform, subscription.chat_id, subscription.thread_id)
            for subscription in found
        }

    followed = await service.read(request.text("board"), work)
    shown = [_channel(address) for _, address in sorted(homes.items())]
    return {"home_channels": [{**row, "subscribed": _key(row) in followed} for row in shown]}


async def follow_at_home(service: BoardService, request: RouteRequest) -> JsonObject:
    home, task = _home(service, request), request.path["task"]
    wanted = BoardSubscription(
        task_id=task,
        platform=home.channel,
        chat_id=home.chat,
        thread_id=home.thread or "",
        notifier_profile=service.profile,
    )
    await service.write(request.text("board"), lambda rows: subscribe(rows, wanted, service.now()))
    return {"ok": True, "task_id": task, "home_channel": _channel(home)}


async def unfollow_at_home(service: BoardService, request: RouteRequest) -> JsonObject:
    home, task = _home(service, request), request.path["task"]

    def work(rows: BoardRows) -> None:
        find_task(rows, task)
        rows.remove_subscription(task, home.channel, home.chat, home.thread or "")

    await service.write(request.text("board"), work)
    return {"ok": True, "task_id": task, "home_channel": _channel(home)}


def _home(service: BoardService, request: RouteRequest) -> Address:
    platform = request.path["platform"]
    home = service.known_chats().homes.get(platform)
    if home is None:
        raise NotFound(
            f"The platform {platform!r} has no home channel.",
            hint="Send /sethome in one of its chats.",
        )
    return home


def _channel(home: Address) -> JsonObject:
    return {
        "platform": home.channel,
        "chat_id": home.chat,
        "thread_id": home.thread or "",
        "name": "Home",
    }


def _key(channel: JsonObject) -> tuple[object, object, object]:
    return channel["platform"], channel["chat_id"], channel["thread_id"]
