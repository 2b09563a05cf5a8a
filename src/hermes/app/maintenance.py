"""Daily maintenance of a profile: delete old data, prune sessions, curate skills."""

import logging
from datetime import timedelta

from hermes.app.build import App
from hermes.app.learning import curation_limits
from hermes.app.storage import LoggedProgress, forget_stored_files, import_public_sessions
from hermes.gateway.questions import QuestionPosts
from hermes.kit.errors import HermesError
from hermes.schema.errors import StoreError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.session.recorder import prune_failures

log = logging.getLogger(__name__)

FIRST_DELAY = 300.0
"""Seconds after startup."""

QUEUE_RETENTION = timedelta(days=30)
"""How long completed keys are remembered; platforms repeat updates for less time."""

RUN_RETENTION = timedelta(hours=24)
MAX_RUN_BYTES = 200 * 1024 * 1024
"""How long, and how much, events of ended runs are kept."""

RESPONSE_RETENTION = timedelta(days=30)
MAX_RESPONSE_BYTES = 200 * 1024 * 1024
"""How long, and how much, responses are kept."""

MIN_FILE_AGE = timedelta(days=1)
"""Younger files are kept, because they may still be in use or waiting to be sent."""

CHANGE_RETENTION = timedelta(days=365)
"""How long a change to memory or a skill can be undone."""

PRUNE_BATCH = 200
MAX_DUPLICATES = 5
"""Maximum number of memory removals proposed at a time."""


class ProfileMaintenance:
    def __init__(self, app: App) -> None:
        self._app = app

    async def run(self) -> None:
        """Run until cancelled."""
        pause = FIRST_DELAY
        while True:
            await self._app.clock.sleep(pause)
            pause = max(self._app.config.sessions.min_interval_hours, 1.0) * 3600
            try:
                await self.run_once()
            except StoreError as error:
                log.warning("store maintenance failed: %s", error)

    async def run_once(self) -> None:
        store, sessions = self._app.store, self._app.config.sessions
        now = self._app.clock.now()
        await import_public_sessions(store, self._app.home, LoggedProgress())
        forgotten = await store.maintenance.prune_queues(now - QUEUE_RETENTION)
        runs = await store.journal.forget(now - RUN_RETENTION, MAX_RUN_BYTES)
        responses = await store.responses.forget(now - RESPONSE_RETENTION, MAX_RESPONSE_BYTES)
        await self._app.approvals.delete_old()
        await QuestionPosts(store, self._app.clock).forget_old()
        await prune_failures(store, now)
        await curate_if_due(self._app)
        await self._app.learning.ledger.forget(now - CHANGE_RETENTION)
        files = 0
        if max_bytes := self._app.config.gateway.max_stored_media_bytes:
            files = await forget_stored_files(self._app.home, now - MIN_FILE_AGE, max_bytes)
        pruned = 0
        if sessions.auto_prune:
            pruned = await self._prune(timedelta(days=sessions.retention_days))
            if pruned and sessions.vacuum_after_prune:
                await store.maintenance.vacuum()
        await store.maintenance.optimize()
        log.info(
            "maintenance: deleted %d completed items, %d runs, %d responses and %d stored files, "
            "pruned %d sessions",
            forgotten,
            runs,
            responses,
            files,
            pruned,
        )

    async def _prune(self, age: timedelta) -> int:
        """Delete sessions that ended, or were last used, before that age, oldest first."""
        now = self._app.clock.now()
        archive = self._app.store.archive_for(OWNER)
        where = SessionFilter(started_before=now - age, reviews=True)
        pruned, kept = 0, 0
        while found := await archive.list(where, PRUNE_BATCH, kept):
            old = [summary.session.id for summary in found if summary.last_at < now - age]
            kept += len(found) - len(old)
            pruned += await archive.delete(old)
        return pruned


async def curate_if_due(app: App) -> None:
    """Curate skills at the configured interval, and only when the profile is idle."""
    settings = app.config.curator
    if not settings.enabled or not app.home.skills.is_dir():
        return
    curator = app.learning.curator
    if not curator.due(timedelta(hours=settings.interval_hours)):
        return
    if not await _is_idle(app, timedelta(hours=settings.min_idle_hours)):
        return
    try:
        changes = await curator.curate(curation_limits(app.config))
    except HermesError as error:
        log.warning("skills could not be curated: %s", error)
        return
    for change in changes:
        log.info(
            "skill %s is now %s: unused for %d days", change.name, change.new_state, change.days
        )
    if settings.consolidate:
        try:
            await propose_merges(app)
        except HermesError as error:
            log.warning("merges could not be proposed: %s", error)


async def propose_merges(app: App) -> None:
    """Propose to remove duplicates, for the owner to decide."""
    from hermes.learning.duplicates import find_duplicates, propose_removal  # noqa: PLC0415 - once a week

    proposals = list(await app.learning.curator.propose_merges(curation_limits(app.config).backups))
    memory = app.learning.memory_store
    duplicates = (await find_duplicates(memory))[:MAX_DUPLICATES]
    proposals += [await propose_removal(memory, duplicate) for duplicate in duplicates]
    for proposal in proposals:
        log.info("proposed: %s (%s)", proposal.summary, proposal.why)


async def _is_idle(app: App, long: timedelta) -> bool:
    archive = app.store.archive_for(OWNER)
    latest = await archive.latest()
    return latest is None or app.clock.now() - await archive.active_at(latest.id) >= long
