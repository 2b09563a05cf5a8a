"""Store scheduled jobs and their fires in SQLite."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import assert_never

import msgspec
from msgspec import Raw, Struct, structs

from hermes.ports.jobs import (
    DeleteJob,
    Fire,
    FireState,
    Job,
    JobWrite,
    SaveFire,
    SaveJob,
    StoredJob,
)
from hermes.schema.errors import StateConflict
from hermes.store.connection import Connection, Value, load_statements
from hermes.store.engine import Engine
from hermes.store.rows import TimeRow, from_micros, to_micros, unreadable_error

_SQL = load_statements("jobs")
_FIELDS = frozenset(Job.__struct_fields__)


class _JobRow(Struct, array_like=True, frozen=True):
    revision: int
    checked_at: int
    body: bytes
    exported: bytes

    def stored(self) -> StoredJob:
        try:
            job = msgspec.json.decode(self.body, type=Job)
            fields = msgspec.json.decode(self.body, type=dict[str, Raw])
        except msgspec.MsgspecError as error:
            raise unreadable_error("A scheduled job", error) from error
        return StoredJob(
            job=job,
            revision=self.revision,
            checked_at=from_micros(self.checked_at),
            exported=self.exported,
            other={name: Raw(bytes(fields[name])) for name in fields if name not in _FIELDS},
        )


class _FireRow(Struct, array_like=True, frozen=True):
    body: bytes

    def fire(self) -> Fire:
        try:
            return msgspec.json.decode(self.body, type=Fire)
        except msgspec.MsgspecError as error:
            raise unreadable_error("A run of a scheduled job", error) from error


class SqliteJobs:
    """Implements `hermes.ports.jobs.Jobs`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def all(self) -> Sequence[StoredJob]:
        return await self._jobs("all", {})

    async def get(self, job: str) -> StoredJob | None:
        return next(iter(await self._jobs("get", {"id": job})), None)

    async def due(self, now: datetime, limit: int) -> Sequence[StoredJob]:
        return await self._jobs("due", {"now": to_micros(now), "limit": limit})

    async def without_instant(self) -> Sequence[StoredJob]:
        return await self._jobs("without instant", {})

    async def next_due(self) -> datetime | None:
        return await self._engine.fetch_first(_SQL["next due"], {}, TimeRow, TimeRow.time)

    async def ahead_of(self, now: datetime) -> Sequence[StoredJob]:
        return await self._jobs("ahead", {"now": to_micros(now)})

    async def fire(self, job: str, at: datetime) -> Fire | None:
        values = {"job": job, "at": to_micros(at)}
        return next(iter(await self._fires("fire", values)), None)

    async def fires(self, job: str | None, limit: int) -> Sequence[Fire]:
        if job is None:
            return await self._fires("fires", {"limit": limit})
        return await self._fires("fires of job", {"job": job, "limit": limit})

    async def sessions(self, since: datetime) -> Mapping[str, str]:
        values = {"since": to_micros(since)}

        def read(connection: Connection) -> dict[str, str]:
            found = connection.execute(_SQL["sessions"], values)
            return {str(session): str(job) for session, job in found}

        return await self._engine.read(read)

    async def next_start(self) -> datetime | None:
        return await self._engine.fetch_first(_SQL["next start"], {}, TimeRow, TimeRow.time)

    async def busy(self, jobs: Sequence[str]) -> Collection[str]:
        values = {"jobs": msgspec.json.encode(jobs).decode()}

        def read(connection: Connection) -> set[str]:
            return {str(row[0]) for row in connection.execute(_SQL["busy"], values)}

        return await self._engine.read(read)

    async def open_fires(self, job: str) -> Sequence[Fire]:
        return await self._fires("open fires", {"job": job})

    async def forget(self, job: str, keep: int) -> int:
        values = {"job": job, "keep": keep}
        return await self._engine.execute(_SQL["forget fires"], values)

    async def _jobs(self, statement: str, values: Mapping[str, Value]) -> list[StoredJob]:
        return await self._engine.fetch(_SQL[statement], values, _JobRow, _JobRow.stored)

    async def _fires(self, statement: str, values: Mapping[str, Value]) -> list[Fire]:
        return await self._engine.fetch(_SQL[statement], values, _FireRow, _FireRow.fire)


def apply_job_write(connection: Connection, write: JobWrite) -> None:
    match write:
        case SaveJob():
            _save_job(connection, write)
        case DeleteJob():
            _delete_job(connection, write)
        case SaveFire():
            _save_fire(connection, write)
        case _:
            assert_never(write)


def _save_job(connection: Connection, write: SaveJob) -> None:
    stored, job = write.job, write.job.job
    next_at = to_micros(job.next_run_at) if job.next_run_at and job.enabled else None
    values = {
        "id": job.id,
        "revision": stored.revision,
        "next_at": next_at,
        "checked_at": to_micros(stored.checked_at),
        "body": job_json(stored),
        "exported": stored.exported,
    }
    connection.execute(_SQL["change job" if stored.revision else "add job"], values)
    if connection.changes() == 0:
        raise StateConflict(f"The job {job.id} was changed by another process.")


def job_json(stored: StoredJob) -> bytes:
    """Return the job as JSON, including fields of other programs."""
    job = structs.asdict(stored.job)
    return msgspec.json.encode({**job, **stored.other})


def _delete_job(connection: Connection, write: DeleteJob) -> None:
    connection.execute(_SQL["delete job"], {"id": write.id})


def _save_fire(connection: Connection, write: SaveFire) -> None:
    fire = write.fire
    values = {
        "job": fire.job,
        "at": to_micros(fire.at),
        "state": fire.state.value,
        "open": int(fire.state.is_open),
        "due": to_micros(fire.due or fire.at) if fire.state is FireState.CLAIMED else None,
        "body": msgspec.json.encode(fire),
        "expected": msgspec.json.encode(write.expected).decode(),
    }
    connection.execute(_SQL["change fire" if write.expected else "add fire"], values)
    if connection.changes() == 0:
        raise StateConflict(f"The run {fire.key} was handled by another process.")
