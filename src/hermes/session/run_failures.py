"""How turns ended that have no answer: what failed is told apart from what was cut short."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw

from hermes.kit.text import head_and_tail
from hermes.ports.records import PutRecord, StateRecord
from hermes.ports.store import Store
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Scope

RUN_END_KIND = "run_end"
_FAILURES = frozenset({Outcome.FAILED, Outcome.EXHAUSTED})
"""Whatever else has no answer was interrupted, by somebody or with its process."""

RETENTION = timedelta(days=90)
MAX_REASON = 2_000
"""Characters of a reason: a provider may answer with a whole page."""


def failure_writes(scope: Scope, ended: RunEnded, at: datetime) -> list[PutRecord]:
    """To be written with the run's last word."""
    if ended.outcome not in _FAILURES:
        return []
    matter = StateRecord(
        kind=RUN_END_KIND,
        id=scope.run,
        session=scope.session,
        state=ended.outcome.value,
        at=at,
        body=Raw(msgspec.json.encode(head_and_tail(ended.reason, MAX_REASON))),
        open=False,
    )
    return [PutRecord(matter)]


async def prune_failures(store: Store, now: datetime) -> int:
    """Such a turn then reads as one that was cut short."""
    return await store.records.forget(RUN_END_KIND, now - RETENTION)


async def failure_reasons(store: Store, session: str) -> Mapping[str, str]:
    """The runs of a session that came to such an end, each with its reason."""
    found = await store.records.find(RUN_END_KIND, session=session)
    return {one.id: msgspec.json.decode(one.body, type=str) for one in found}
