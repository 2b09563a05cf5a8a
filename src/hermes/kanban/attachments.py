"""Files of tasks: copied into the board's folder, so that they outlive a scratch workspace."""

import mimetypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.kit.files import read_regular_file, write_atomic
from hermes.ports.board import BoardRows
from hermes.schema.board import Attachment
from hermes.schema.errors import NotFound, UsageError

MAX_ATTACHMENT = 25 * 1024 * 1024
P = TypeVarTuple("P")
R = TypeVar("R")
_UNSAFE = re.compile(r"[^\w.\- ]+")


async def attach_file(
    service: BoardService,
    slug: str | None,
    task_id: str,
    path: Path,
    *,
    name: str = "",
    content_type: str = "",
    author: str = "",
) -> Attachment:
    data = await _in_thread(_read, path)
    return await attach_bytes(
        service, slug, task_id, name or path.name, data, content_type=content_type, author=author
    )


async def attach_bytes(
    service: BoardService,
    slug: str | None,
    task_id: str,
    name: str,
    data: bytes,
    *,
    content_type: str = "",
    author: str = "",
) -> Attachment:
    """Store a file under a free name; the row is written when the file is complete."""
    if len(data) > MAX_ATTACHMENT:
        raise UsageError(f"{name} is larger than {MAX_ATTACHMENT // 1024**2} MB.")
    await service.read(slug, lambda rows: find_task(rows, task_id))
    chosen = service.boards.choose(slug)
    folder = service.boards.paths(chosen).attachments / task_id
    stored = await _in_thread(_store, folder, safe_name(name), data)
    now = service.now()
    attachment = Attachment(
        id=0,
        task_id=task_id,
        filename=stored.name,
        stored_path=str(stored),
        content_type=content_type or mimetypes.guess_type(stored.name)[0],
        size=len(data),
        uploaded_by=author or service.profile,
        created_at=now,
    )

    def work(rows: BoardRows) -> Attachment:
        number = rows.add_attachment(attachment)
        payload = {"filename": stored.name, "size": len(data), "by": attachment.uploaded_by}
        rows.add_event(task_id, "attached", now, payload, None)
        found = rows.attachment(number)
        return found or attachment

    return await service.write(chosen, work)


async def remove_attachment(service: BoardService, slug: str | None, number: int) -> Attachment:
    def work(rows: BoardRows) -> Attachment:
        found = rows.attachment(number)
        if found is None:
            raise NotFound(f"There is no attachment {number}.")
        rows.remove_attachment(number)
        payload = {"filename": found.filename}
        rows.add_event(found.task_id, "attachment_removed", service.now(), payload, None)
        return found

    removed = await service.write(slug, work)
    await _in_thread(lambda: Path(removed.stored_path).unlink(missing_ok=True))
    return removed


def safe_name(name: str) -> str:
    """The last part of a name, without characters that mean something in a path."""
    plain = _UNSAFE.sub("_", Path(name).name).strip(". ")[:200]
    return plain or "file"


async def _in_thread(work: Callable[[*P], R], *arguments: *P) -> R:
    from anyio.to_thread import run_sync  # noqa: PLC0415 - help and completion do without

    return await run_sync(work, *arguments)


def _read(path: Path) -> bytes:
    try:
        return read_regular_file(path.expanduser(), MAX_ATTACHMENT)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}.") from error


def _store(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = _free_path(folder, name)
    write_atomic(path, data, mode=0o600)
    return path


def _free_path(folder: Path, name: str) -> Path:
    path, count = folder / name, 1
    while path.exists():
        count += 1
        path = folder / f"{Path(name).stem}-{count}{Path(name).suffix}"
    return path
