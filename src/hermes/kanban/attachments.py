"""Store files of tasks in the board's folder, so that they outlive a scratch workspace."""

import mimetypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from msgspec import structs

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task
from hermes.kit.files import read_file_below, read_regular_file, write_atomic
from hermes.ports.board import BoardRows
from hermes.schema.board import Attachment, JsonObject
from hermes.schema.errors import NotFound, UsageError

MAX_ATTACHMENT = 25 * 1024 * 1024
MAX_NAME = 200
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
    await service.read(slug, lambda rows: find_task(rows, task_id))
    chosen = service.boards.choose(slug)
    copy = await copy_bytes(service, chosen, task_id, name, data)
    attachment = structs.replace(
        copy,
        content_type=content_type or copy.content_type,
        uploaded_by=author or copy.uploaded_by,
    )
    return await service.write(chosen, lambda rows: add_attachment(rows, attachment, service.now()))


async def copy_bytes(
    service: BoardService, board: str, task_id: str, name: str, data: bytes
) -> Attachment:
    """Copy a file into the task's folder; the caller stores the row with `add_attachment`."""
    if len(data) > MAX_ATTACHMENT:
        raise UsageError(f"{name} is larger than {MAX_ATTACHMENT // 1024**2} MB.")
    folder = service.boards.paths(board).attachments / task_id
    stored = await _in_thread(_store, folder, safe_name(name), data)
    return Attachment(
        id=0,
        task_id=task_id,
        filename=stored.name,
        stored_path=str(stored),
        content_type=mimetypes.guess_type(stored.name)[0],
        size=len(data),
        uploaded_by=service.profile,
        created_at=service.now(),
    )


def add_attachment(rows: BoardRows, attachment: Attachment, now: int) -> Attachment:
    """Store the row of a file that is already in the task's folder."""
    number = rows.add_attachment(attachment)
    payload: JsonObject = {
        "filename": attachment.filename,
        "size": attachment.size,
        "by": attachment.uploaded_by,
    }
    rows.add_event(attachment.task_id, "attached", now, payload, None)
    return structs.replace(attachment, id=number)


async def read_attachment(
    service: BoardService, slug: str | None, number: int
) -> tuple[Attachment, bytes]:
    """A file with its bytes. Raises `NotFound`."""
    board = service.boards.choose(slug)
    found = await service.read(board, lambda rows: rows.attachment(number))
    if found is None:
        raise NotFound(f"There is no attachment {number}.")
    folder = service.boards.paths(board).attachments
    try:
        # The path comes from a database that other programs also write.
        data = await _in_thread(read_file_below, folder, Path(found.stored_path), MAX_ATTACHMENT)
    except (OSError, ValueError) as error:
        raise NotFound(f"The file of attachment {number} cannot be read.") from error
    return found, data


async def remove_attachment(service: BoardService, slug: str | None, number: int) -> Attachment:
    def work(rows: BoardRows) -> Attachment:
        found = rows.attachment(number)
        if found is None:
            raise NotFound(f"There is no attachment {number}.")
        rows.remove_attachment(number)
        payload = {"filename": found.filename}
        rows.add_event(found.task_id, "attachment_removed", service.now(), payload, None)
        return found

    board = service.boards.choose(slug)
    removed = await service.write(board, work)
    folder = service.boards.paths(board).attachments
    await _in_thread(_delete_below, folder, Path(removed.stored_path))
    return removed


def _delete_below(folder: Path, file: Path) -> None:
    """Delete a file in the folder; rows, which other programs write, may name any file."""
    if file.resolve().is_relative_to(folder.resolve()):
        file.unlink(missing_ok=True)


async def remove_unnamed_files(service: BoardService, slug: str, before: int) -> int:
    """Delete old copies that no row names, because their process was killed; return how many."""
    folder = service.boards.paths(slug).attachments
    old = await _in_thread(_older_files, folder, before)

    def work(rows: BoardRows) -> list[Path]:
        tasks = {path.parent.name for path in old}
        named = {task: _stored_names(rows, task) for task in tasks}
        return [
            path
            for path in old
            if (names := named[path.parent.name]) is not None and path.name not in names
        ]

    unnamed = await service.read(slug, work) if old else []
    for path in unnamed:
        await _in_thread(path.unlink, True)
    return len(unnamed)


def _stored_names(rows: BoardRows, task_id: str) -> set[str] | None:
    """Return the names of the task's files; None if any is outside the folder."""
    stored = [Path(attachment.stored_path) for attachment in rows.attachments(task_id)]
    is_known = all(path.parent.name == task_id for path in stored)
    return {path.name for path in stored} if is_known else None


def _older_files(folder: Path, before: int) -> list[Path]:
    return [path for path in folder.glob("*/*") if path.stat().st_mtime < before]


def safe_name(name: str) -> str:
    """Return the last part of a name, without characters that are special in paths."""
    plain = _UNSAFE.sub("_", Path(name).name).strip(". ")
    # File systems limit a name in bytes, not in characters.
    return plain.encode()[:MAX_NAME].decode("utf-8", "ignore") or "file"


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
    path = _reserved_path(folder, name)
    try:
        write_atomic(path, data, mode=0o600)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _reserved_path(folder: Path, name: str) -> Path:
    """Create an empty file, so that no other process chooses the same name."""
    path, count = folder / name, 1
    while True:
        try:
            path.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            count += 1
            path = folder / f"{Path(name).stem}-{count}{Path(name).suffix}"
        else:
            return path
