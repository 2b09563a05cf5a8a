"""Skills that nobody uses are put away now and then, when nobody is at work."""

import logging
from datetime import timedelta

from hermes.app.build import App
from hermes.app.learning import ages_of
from hermes.kit.errors import HermesError
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)


async def curate_when_due(app: App) -> None:
    """As often as the settings say, and only after a while in which nothing was said."""
    settings = app.config.curator
    if not settings.enabled or not app.home.skills.is_dir():
        return
    curator = app.learning.curator
    if not curator.due(timedelta(hours=settings.interval_hours)):
        return
    if not await _is_idle(app, timedelta(hours=settings.min_idle_hours)):
        return
    try:
        found = await curator.curate(ages_of(app.config))
    except HermesError as error:
        log.warning("the skills could not be looked after: %s", error)
        return
    for one in found:
        log.info("skill %s is now %s: not used for %d days", one.name, one.becomes, one.days)


async def _is_idle(app: App, long: timedelta) -> bool:
    archive = app.store.seen_by(OWNER)
    latest = await archive.latest()
    return latest is None or app.clock.now() - await archive.active_at(latest.id) >= long
