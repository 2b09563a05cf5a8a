"""How turns ended that have no answer: what failed is told apart from what was cut short."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw

from hermes.kit.text import head_and_tail
from hermes.ports.matters import Matter, PutMatter
from hermes.ports.store import Store
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Scope

KIND = "run_end"
_NOTED = frozenset({Outcome.FAILED, Outcome.EXHAUSTED})
"""Whatever else has no answer was interrupted, by somebody or with its process."""

KEPT = timedelta(days=90)
LONGEST = 2_000
"""Characters of a reason: a provider may answer with a whole page."""


def noted_end(scope: Scope, ended: RunEnded, at: datetime) -> list[PutMatter]:
    """To be written with the run's last word."""
    if ended.outcome not in _NOTED:
        return []
    matter = Matter(
        kind=KIND,
        id=scope.run,
        session=scope.session,
        state=ended.outcome.value,
        at=at,
        body=Raw(msgspec.json.encode(head_and_tail(ended.reason, LONGEST))),
        open=False,
    )
    return [PutMatter(matter)]


async def forget_old_ends(store: Store, now: datetime) -> int:
    """Such a turn then reads as one that was cut short."""
    return await store.matters.forget(KIND, now - KEPT)


async def noted_ends(store: Store, session: str) -> Mapping[str, str]:
    """The runs of a session that came to such an end, each with its reason."""
    found = await store.matters.find(KIND, session=session)
    return {one.id: msgspec.json.decode(one.body, type=str) for one in found}
