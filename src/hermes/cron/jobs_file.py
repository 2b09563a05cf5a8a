"""Keep `cron/jobs.json` of the public system in step with the store.

The store is authoritative. Changes that others made to the file are imported job by job; then the
file is rewritten if it differs.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Raw, Struct, structs

from hermes.kit.files import keep_aside, read_regular_file, write_atomic
from hermes.kit.json_errors import JSON_ERRORS
from hermes.ports.jobs import Job, StoredJob

log = logging.getLogger(__name__)

MAX_FILE = 64 << 20
_FIELDS = frozenset(Job.__struct_fields__)


class _File(Struct, frozen=True):
    jobs: list[dict[str, Raw]]


class FileChanges(Struct, frozen=True):
    """Changes made by others: jobs to save, and ids of removed jobs."""

    saved: tuple[StoredJob, ...] = ()
    removed: tuple[str, ...] = ()


class JobsFile:
    """`foreign` jobs, which we cannot read, stay in the file as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int, int] | None = None
        self._foreign: list[dict[str, Raw]] = []
        self._entries: list[bytes] = []

    def changed(self) -> bool:
        """Whether someone else wrote the file since we read or wrote it."""
        return self._now() != self._stamp

    def read(self, stored: Mapping[str, StoredJob], now: datetime) -> FileChanges:
        """Compare the file with the jobs as they were last exported."""
        self._stamp = self._now()
        if self._stamp is None:
            self._entries = []
            return FileChanges()
        try:
            data = read_regular_file(self.path, MAX_FILE)
            found = _decode(data)
        except (OSError, *JSON_ERRORS) as error:
            self._keep_aside(error, now)
            return FileChanges()
        self._foreign, self._entries = [], [_canonical(fields) for fields in found]
        saved: list[StoredJob] = []
        seen: set[str] = set()
        for fields in found:
            body = _canonical(fields)
            try:
                job = msgspec.json.decode(body, type=Job)
            except msgspec.MsgspecError as error:
                log.warning("a job in %s cannot be read and does not run: %s", self.path, error)
                self._foreign.append(fields)
                continue
            seen.add(job.id)
            known = stored.get(job.id)
            if known is None or known.exported != body:
                other = {name: value for name, value in fields.items() if name not in _FIELDS}
                saved.append(_merged(known, job, body, other, now))
        removed = [
            name for name, stored_job in stored.items() if stored_job.exported and name not in seen
        ]
        return FileChanges(tuple(saved), tuple(removed))

    def write(self, jobs: Sequence[StoredJob], now: datetime) -> Sequence[StoredJob]:
        """Write the jobs unless the file already has them; return those exported again."""
        bodies = [exported_form(job) for job in jobs]
        entries = [*bodies, *map(_canonical, self._foreign)]
        if entries != self._entries and (entries or self._entries):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            document = {"jobs": [*map(Raw, entries)], "updated_at": now.astimezone()}
            text = msgspec.json.format(msgspec.json.encode(document), indent=2)
            write_atomic(self.path, text + b"\n", mode=0o600)
            self._entries = entries
            self._stamp = self._now()
        return [
            structs.replace(job, exported=body)
            for job, body in zip(jobs, bodies, strict=True)
            if job.exported != body
        ]

    def _now(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _keep_aside(self, error: Exception, now: datetime) -> None:
        """Keep an unreadable file under another name; it is never overwritten."""
        try:
            aside = keep_aside(self.path, now)
        except OSError:
            aside = self.path
        self._entries = []
        log.error("%s cannot be read (%s); it was kept as %s", self.path, error, aside)
        self._stamp = None


def exported_form(stored: StoredJob) -> bytes:
    """Return the job as written in the file."""
    fields = msgspec.json.decode(msgspec.json.encode(stored.job), type=dict[str, Raw])
    return _canonical({**fields, **stored.other})


def _canonical(fields: Mapping[str, Raw]) -> bytes:
    """Return the same bytes for the same job, regardless of order and spacing in the file."""
    return msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(fields)), order="sorted")


def _decode(data: bytes) -> list[dict[str, Raw]]:
    # Very old files hold a plain list.
    if data.lstrip().startswith(b"["):
        return msgspec.json.decode(data, type=list[dict[str, Raw]])
    return msgspec.json.decode(data, type=_File).jobs if data.strip() else []


def _merged(
    known: StoredJob | None, job: Job, body: bytes, other: Mapping[str, Raw], now: datetime
) -> StoredJob:
    """Merge the file's job into ours; the file's fields win."""
    if known is None:
        return StoredJob(job=job, checked_at=now, exported=body, other=other)
    return structs.replace(known, job=job, checked_at=now, exported=body, other=other)
