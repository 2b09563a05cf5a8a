"""What a long-running process does for its store once a day: forget, tidy, prune as asked."""

import logging
from datetime import timedelta

from hermes.app.build import App
from hermes.app.curating import curate_when_due
from hermes.gateway.question_posts import QuestionPosts
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.session.endings import forget_old_ends

log = logging.getLogger(__name__)

FIRST_AFTER = 300.0
"""Seconds: a start is busy enough."""

REMEMBERED = timedelta(days=30)
"""How long it is known that something was done: platforms repeat themselves for less."""

RUNS = timedelta(hours=24)
RUN_BYTES = 200 * 1024 * 1024
"""How long the events of ended runs are kept for readers, and how much of them."""

RESPONSES = timedelta(days=30)
RESPONSE_BYTES = 200 * 1024 * 1024
"""How long responses can be gone on from, and how much of them is kept."""

CHANGES = timedelta(days=365)
"""How long a change of memory or a skill can be undone."""

AT_ONCE = 200


class Upkeep:
    def __init__(self, app: App) -> None:
        self._app = app

    async def run(self) -> None:
        """Until cancelled."""
        pause = FIRST_AFTER
        while True:
            await self._app.clock.sleep(pause)
            pause = max(self._app.config.sessions.min_interval_hours, 1.0) * 3600
            try:
                await self.once()
            except StoreError as error:
                log.warning("the store could not be tidied: %s", error)

    async def once(self) -> None:
        store, sessions = self._app.store, self._app.config.sessions
        forgotten = await store.lanes.forget(self._app.clock.now() - REMEMBERED)
        now = self._app.clock.now()
        runs = await store.journal.forget(now - RUNS, RUN_BYTES)
        responses = await store.responses.forget(now - RESPONSES, RESPONSE_BYTES)
        await self._app.approvals.forget_old()
        await QuestionPosts(store, self._app.clock).forget_old()
        await forget_old_ends(store, now)
        await curate_when_due(self._app)
        await self._app.learning.ledger.forget(now - CHANGES)
        pruned = 0
        if sessions.auto_prune:
            pruned = await self._prune(timedelta(days=sessions.retention_days))
            if pruned and sessions.vacuum_after_prune:
                await store.vacuum()
        await store.optimize()
        log.info(
            "upkeep: forgot %d settled parcels, %d runs and %d responses, pruned %d sessions",
            forgotten,
            runs,
            responses,
            pruned,
        )

    async def _prune(self, age: timedelta) -> int:
        """Sessions that ended, or were last used, before that; the oldest go first."""
        now = self._app.clock.now()
        archive = self._app.store.seen_by(OWNER)
        where = SessionFilter(started_before=now - age, reviews=True)
        pruned, kept = 0, 0
        while found := await archive.list(where, AT_ONCE, kept):
            old = [one.session.id for one in found if one.last_at < now - age]
            kept += len(found) - len(old)
            pruned += await archive.delete(old)
        return pruned
