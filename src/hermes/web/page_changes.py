"""Tell open pages when the board or the jobs have changed."""

import logging

from hermes.cron.operation import CronOperation
from hermes.kanban.service import BOARD_TOPIC
from hermes.schema.errors import StoreError
from hermes.web.context import ProfileWeb

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Minimum seconds between notices, because each makes a page reload its content."""
MAX_FIRES = 30


async def watch_board(profile: ProfileWeb) -> None:
    with profile.app.bus.listen(BOARD_TOPIC) as wakeups:
        while True:
            await wakeups.wait()
            wakeups.take()
            profile.feed.publish("changed", {"page": "board"})
            await profile.app.clock.sleep(INTERVAL)


async def watch_jobs(profile: ProfileWeb) -> None:
    """Watch the jobs while a page is open, because any process may change or run them."""
    # A page may have been loaded before the first check, so that check counts as a change.
    seen: list[object] = []
    while True:
        await profile.app.clock.sleep(INTERVAL)
        if not profile.feed.watched:
            continue
        found = await _jobs(profile)
        if found is not None and found != seen:
            profile.feed.publish("changed", {"page": "jobs"})
            seen = found


async def _jobs(profile: ProfileWeb) -> list[object] | None:
    """All jobs and their last runs; None if they cannot be read."""
    cron: CronOperation = profile.app.features.get("cron")
    try:
        fires = await cron.service.history(None, MAX_FIRES)
        return [*await cron.service.jobs(disabled=True), *fires]
    except StoreError as error:
        log.warning("cannot look at the jobs: %s", error)
    except Exception:
        # Jobs that cannot be read must not end the other live updates.
        log.exception("cannot look at the jobs")
    return None
