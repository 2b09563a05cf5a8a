"""Incidents: failures of a job in a row, from the first one to the success that ends them."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from hermes.ports.jobs import Fire, FireState, Job

_BAD = frozenset({FireState.FAILED, FireState.UNKNOWN, FireState.MISSED})


class IncidentState(StrEnum):
    """`alerted`: the chat was notified; `closed`: someone acknowledged it."""

    DETECTED = "detected"
    ALERTED = "alerted"
    RESOLVED = "resolved"
    CLOSED = "closed"


class Incident(Struct, frozen=True, kw_only=True):
    id: str
    job: str
    name: str
    state: IncidentState
    first: datetime
    last: datetime
    failures: int
    reason: str


def incidents_of(job: Job, fires: Sequence[Fire]) -> list[Incident]:
    """Return the incidents in a job's fires; both are ordered newest first."""
    found: list[Incident] = []
    group: list[Fire] = []
    for fire in reversed(fires):
        if fire.state in _BAD:
            group.append(fire)
        elif fire.state is FireState.COMPLETED and group:
            found.append(_incident(job, group, resolved=True))
            group = []
    if group:
        found.append(_incident(job, group, resolved=False))
    return found[::-1]


def _incident(job: Job, fires: Sequence[Fire], *, resolved: bool) -> Incident:
    last = fires[-1].until or fires[-1].at
    failures = sum(fire.count for fire in fires)
    after = job.policy.alert_after
    state = IncidentState.ALERTED if after and failures >= after else IncidentState.DETECTED
    if resolved:
        state = IncidentState.RESOLVED
    if job.acknowledged_at is not None and last <= job.acknowledged_at:
        state = IncidentState.CLOSED
    return Incident(
        id=f"{job.id}-{fires[0].at:%Y%m%d%H%M%S}",
        job=job.id,
        name=job.name,
        state=state,
        first=fires[0].at,
        last=last,
        failures=failures,
        reason=fires[-1].reason,
    )
