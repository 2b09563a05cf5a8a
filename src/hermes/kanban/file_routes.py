"""The board's HTTP routes for files of tasks and for the logs of their workers."""

from pathlib import Path

from hermes.kanban.attachments import attach_bytes, read_attachment, remove_attachment
from hermes.kanban.presentation import attachment_object
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.ports.board import BoardRows
from hermes.ports.feature import FileAnswer, RouteRequest
from hermes.schema.board import JsonObject
from hermes.schema.errors import NotFound, UsageError

MAX_LOG = 2_000_000
"""Bytes of a log that are returned at once."""


async def list_files(service: BoardService, request: RouteRequest) -> JsonObject:
    def work(rows: BoardRows) -> JsonObject:
        found = rows.attachments(find_task(rows, request.path["task"]).id)
        return {"attachments": [attachment_object(one) for one in found]}

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
