"""Scheduled jobs and their fires, and the repository that stores them.

A job has the fields of the public system's `cron/jobs.json`, plus `timezone` and `policy`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Raw, Struct


class ScheduleKind(StrEnum):
    ONCE = "once"
    INTERVAL = "interval"
    CRON = "cron"
    EVENT = "event"  # a file that changes, or a webhook


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job fires: at `run_at`, every `minutes`, by the expression `expr`, or on an event.

    An event is a change of the file or folder `path`; without one, only a webhook route that names
    the job fires it.
    """

    kind: ScheduleKind
    display: str = ""
    run_at: datetime | None = None
    minutes: float = 0
    expr: str = ""
    path: str = ""


class Repeat(Struct, frozen=True, kw_only=True):
    """How often a job fires in all (None: without end), and how often it has."""

    times: int | None = None
    completed: int = 0


class MissedFires(StrEnum):
    """Which fires that were missed during a downtime run afterwards."""

    ALL = "all"
    LAST = "last"
    NONE = "none"


class Overlap(StrEnum):
    """What a fire does while the previous one is unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    PARALLEL = "parallel"


class Unreachable(StrEnum):
    """What a fire does if the model cannot be reached."""

    RETRY = "retry"
    FAIL = "fail"


class JobPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job handles delays and failures. Times are in seconds, money in dollars.

    - `max_lateness`: a fire later than this is missed; None: half the period, 2 to 120 minutes.
    - `jitter`: a fire starts up to this much later, to spread the load.
    - `timeout`: how long a run may take; None: only the limit for inactivity applies.
    - `retries`: how often a failed fire is repeated, after `retry_delay`, then twice that, ...
    - `spend_cap`: a run ends when it has cost this much.
    - `alert_after`: after how many failures in a row the job's chat gets a notice, once; 0: never.
    """

    missed: MissedFires = MissedFires.LAST
    max_lateness: float | None = None
    jitter: float = 0
    timeout: float | None = None
    overlap: Overlap = Overlap.SKIP
    retries: int = 0
    retry_delay: float = 60
    spend_cap: float | None = None
    alert_after: int = 1
    unreachable: Unreachable = Unreachable.RETRY


class JobOrigin(Struct, frozen=True, kw_only=True):
    """The chat in which a job was created."""

    platform: str = ""
    chat_id: str = ""
    chat_name: str | None = None
    thread_id: str | None = None


class Job(Struct, frozen=True, kw_only=True):
    """One job, as in `cron/jobs.json`."""

    id: str
    schedule: Schedule
    name: str = ""
    prompt: str | None = ""
    skills: tuple[str, ...] | None = ()
    skill: str | None = None
    model: str | None = None
    provider: str | None = None
    provider_snapshot: str | None = None
    model_snapshot: str | None = None
    base_url: str | None = None
    reasoning_effort: str | None = None
    script: str | None = None
    no_agent: bool = False
    context_from: str | tuple[str, ...] | None = None
    schedule_display: str = ""
    repeat: Repeat = Repeat()
    enabled: bool = True
    state: str = "scheduled"
    paused_at: datetime | None = None
    paused_reason: str | None = None
    created_at: datetime | None = None
    next_run_at: datetime | None = None
    last_run_at: datetime | None = None
    last_status: str | None = None
    last_error: str | None = None
    last_delivery_error: str | None = None
    failure_streak: int = 0
    deliver: str = "local"
    origin: JobOrigin | None = None
    enabled_toolsets: tuple[str, ...] | None = None
    workdir: str | None = None
    attach_to_session: bool = False
    timezone: str = ""
    policy: JobPolicy = JobPolicy()
    watched: str | None = None  # the state of `schedule.path` that was handled last
    acknowledged_at: datetime | None = None  # failures up to then were acknowledged

    @property
    def all_skills(self) -> tuple[str, ...]:
        """The skills, including the single one of older files."""
        return tuple(dict.fromkeys([*(self.skills or ()), *([self.skill] if self.skill else [])]))


class StoredJob(Struct, frozen=True, kw_only=True):
    """A job in the store.

    - `revision`: counts the changes; 0 for a job that is not stored yet.
    - `checked_at`: the time at which `next_run_at` was computed.
    - `exported`: the job as last seen in `jobs.json`; empty if it was never there.
    - `other`: fields of the file that are not ours.
    """

    job: Job
    revision: int = 0
    checked_at: datetime
    exported: bytes = b""
    other: Mapping[str, Raw] = {}


class FireState(StrEnum):
    """The state of a fire. `unknown`: its process died; `skipped` and `missed` have a reason."""

    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    MISSED = "missed"

    @property
    def is_open(self) -> bool:
        return self in {FireState.CLAIMED, FireState.RUNNING}


class FireTrigger(StrEnum):
    SCHEDULE = "schedule"
    MANUAL = "manual"
    EVENT = "event"


class Fire(Struct, frozen=True, kw_only=True):
    """One fire, keyed by the job and the scheduled instant.

    A missed one may stand for `count` instants up to `until`.
    """

    job: str
    at: datetime
    state: FireState
    trigger: FireTrigger = FireTrigger.SCHEDULE
    due: datetime | None = None  # when it starts, with jitter or after a failure
    reason: str = ""
    attempt: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    session: str = ""
    run: str = ""
    data: str = ""  # data of the event; untrusted
    output: str = ""  # the beginning of the output; the output file has all of it
    file: str = ""
    until: datetime | None = None
    count: int = 1

    @property
    def key(self) -> str:
        """The key of its inbox row."""
        return f"cron:{self.job}:{self.at.isoformat()}"


SCHEDULED_JOBS = "cron"
"""The queue of fires, and the topic of wake-ups for the scheduler."""
JOB_CALLS = "job-calls"
"""The queue of webhook calls that fire jobs; the topic is the job's id or name."""
HEARTBEAT_JOB = "0000000000be"
"""The id of the job that works on `HEARTBEAT.md`."""


class JobCall(Struct, frozen=True):
    """The body of an item of `JOB_CALLS`."""

    text: str


class SaveJob(Struct, frozen=True):
    """Insert or update a job; its stored revision becomes `revision` + 1.

    The commit fails with `StateConflict` unless `job.revision` is the stored one.
    """

    job: StoredJob


class DeleteJob(Struct, frozen=True):
    """Delete a job; its fires stay until their retention ends."""

    id: str


class SaveFire(Struct, frozen=True):
    """Insert a fire, or update one that is in a state of `expected`.

    Without `expected` the fire must be new, or only missed before; otherwise the commit fails with
    `StateConflict`.
    """

    fire: Fire
    expected: tuple[FireState, ...] = ()


JobWrite: TypeAlias = SaveJob | DeleteJob | SaveFire


class Jobs(Protocol):
    async def all(self) -> Sequence[StoredJob]:
        """All jobs, oldest first."""
        ...

    async def get(self, job: str) -> StoredJob | None: ...

    async def due(self, now: datetime, limit: int) -> Sequence[StoredJob]:
        """Jobs whose next fire is due, earliest first."""
        ...

    async def without_instant(self) -> Sequence[StoredJob]:
        """Jobs that are not due at any time: paused, ended, or fired by events."""
        ...

    async def next_due(self) -> datetime | None:
        """When the next job is due."""
        ...

    async def ahead_of(self, now: datetime) -> Sequence[StoredJob]:
        """Jobs with a next fire that was computed by a later time: the clock was set back."""
        ...

    async def fire(self, job: str, at: datetime) -> Fire | None: ...

    async def fires(self, job: str | None, limit: int) -> Sequence[Fire]:
        """The last fires, newest first."""
        ...

    async def sessions(self, since: datetime) -> Mapping[str, str]:
        """The job of each session that was opened for a fire since then."""
        ...

    async def next_start(self) -> datetime | None:
        """When the next claimed fire starts."""
        ...

    async def busy(self, jobs: Sequence[str]) -> Collection[str]:
        """Those of the jobs that have fires which have not ended."""
        ...

    async def open_fires(self, job: str) -> Sequence[Fire]:
        """Fires that have not ended, oldest first."""
        ...

    async def forget(self, job: str, keep: int) -> int:
        """Delete the ended fires of a job except the last `keep`."""
        ...
