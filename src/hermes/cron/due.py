"""Decide which fires of a job are due, which were missed, and when the next one is."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import chain

from msgspec import Struct

from hermes.cron.instants import instants_after, period, zone_named
from hermes.ports.jobs import Job, MissedFires, ScheduleKind
from hermes.schema.errors import UsageError

MAX_COUNTED = 1000
"""Maximum number of missed instants to count; a longer gap is described by its ends."""
MAX_FIRES = 100
"""Maximum fires of one job that are started at once."""
ON_TIME = timedelta(seconds=120)
"""A fire that is at most this late does not count as missed."""
_LATENESS = (timedelta(minutes=2), timedelta(hours=2))
DOWN = "Hermes was not running, or the clock was set forward"
SUPERSEDED = "a later run makes up for it"


class MissedRange(Struct, frozen=True):
    """`count` instants from `first` to `last` that do not fire, and why."""

    first: datetime
    last: datetime
    count: int
    reason: str


class DueFires(Struct, frozen=True):
    fires: tuple[datetime, ...]
    missed: tuple[MissedRange, ...]
    next_at: datetime | None


def max_lateness(job: Job, at: datetime) -> timedelta:
    """Return how late a fire may be: by policy, or half the period (2 minutes to 2 hours)."""
    if job.policy.max_lateness is not None:
        return _seconds(job.policy.max_lateness)
    if job.schedule.kind is ScheduleKind.ONCE:
        return _LATENESS[1]
    length = period(job.schedule, zone_named(job.timezone), at)
    return min(max((length or _LATENESS[1] * 2) / 2, _LATENESS[0]), _LATENESS[1])


def jitter_of(job: Job, at: datetime) -> timedelta:
    """The delay of a fire; the same on every node."""
    if job.policy.jitter <= 0:
        return timedelta(0)
    digest = blake2b(f"{job.id}:{at.isoformat()}".encode(), digest_size=4).digest()
    return _seconds(job.policy.jitter) * (int.from_bytes(digest, "big") / 2**32)


def _seconds(number: float) -> timedelta:
    """Convert seconds, at most a year, so that computed times stay valid."""
    return timedelta(seconds=min(number, 366 * 86_400))


def remaining(job: Job) -> int | None:
    """How many fires the job has left; None: any number."""
    times = job.repeat.times
    return None if times is None else max(times - job.repeat.completed, 0)


def due_fires(job: Job, now: datetime) -> DueFires:
    """Decide about all instants from the job's next one up to now."""
    first, left = job.next_run_at, remaining(job)
    if first is None or first > now:
        return DueFires((), (), first)
    missed: list[MissedRange] = []
    instants = chain([first], _after(job, first))
    oldest = _oldest(job, first, now)
    if first < oldest:
        gap, instants = _skip(job, instants, oldest)
        missed.append(gap)
    limit = MAX_FIRES if left is None else min(MAX_FIRES, left)
    catches_up = job.policy.missed is MissedFires.ALL
    ready, following = _take(instants, now, limit if catches_up else None)
    fires = ready if catches_up else ready[-1:][:limit]
    if len(ready) > 1 and not catches_up:
        missed.append(MissedRange(ready[0], ready[-2], len(ready) - 1, SUPERSEDED))
    done = left is not None and len(fires) >= left
    return DueFires(tuple(fires), tuple(missed), None if done else following)


def _oldest(job: Job, first: datetime, now: datetime) -> datetime:
    """The oldest instant that may still fire."""
    if job.policy.missed is MissedFires.NONE or now - first <= ON_TIME:
        return now - ON_TIME
    return now - max(max_lateness(job, first), ON_TIME)


def next_after(job: Job, after: datetime) -> datetime | None:
    """The job's first instant after that time."""
    return None if remaining(job) == 0 else next(_after(job, after), None)


def _after(job: Job, after: datetime) -> Iterator[datetime]:
    anchor = job.created_at or after
    try:
        yield from instants_after(job.schedule, zone_named(job.timezone), after, anchor)
    except OverflowError as error:
        raise UsageError("The next run is too far in the future.") from error


def _take(
    instants: Iterator[datetime], end: datetime, limit: int | None
) -> tuple[list[datetime], datetime | None]:
    """The instants up to `end`, at most so many, and the one that follows."""
    times: list[datetime] = []
    for at in instants:
        if at > end or len(times) == limit:
            return times, at
        times.append(at)
    return times, None


def _skip(
    job: Job, instants: Iterator[datetime], oldest: datetime
) -> tuple[MissedRange, Iterator[datetime]]:
    """The gap before `oldest`, and the instants from then on."""
    gap: list[datetime] = []
    for at in instants:
        if at >= oldest:
            return MissedRange(gap[0], gap[-1], len(gap), DOWN), chain([at], instants)
        gap.append(at)
        if len(gap) == MAX_COUNTED:
            break
    last = gap[-1] if len(gap) < MAX_COUNTED else oldest
    rest = _after(job, oldest - timedelta(microseconds=1))
    return MissedRange(gap[0], last, len(gap), DOWN), rest
