"""Store why a turn failed, to tell failed turns from interrupted ones."""

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
"""Any other turn without an answer was interrupted, by a person or with its process."""

RETENTION = timedelta(days=90)
MAX_REASON = 2_000
"""A provider may return a whole page as the reason."""


def failure_writes(scope: Scope, ended: RunEnded, at: datetime) -> list[PutRecord]:
    """Writes to commit with the end of a run."""
    if ended.outcome not in _FAILURES:
        return []
    record = StateRecord(
        kind=RUN_END_KIND,
        id=scope.run,
        session=scope.session,
        state=ended.outcome.value,
        at=at,
        body=Raw(msgspec.json.encode(head_and_tail(ended.reason, MAX_REASON))),
        open=False,
    )
    return [PutRecord(record)]


async def prune_failures(store: Store, now: datetime) -> int:
    """Delete old failures; those turns then look interrupted."""
    return await store.records.forget(RUN_END_KIND, now - RETENTION)


async def failure_reasons(store: Store, session: str) -> Mapping[str, str]:
    """The failed runs of a session with their reasons."""
    records = await store.records.find(RUN_END_KIND, session=session)
    return {record.id: msgspec.json.decode(record.body, type=str) for record in records}
