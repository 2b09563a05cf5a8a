"""Skills that nobody uses are put away now and then, when nobody is at work."""

import logging
from datetime import timedelta

from hermes.app.build import App
from hermes.app.learning import ages_of
from hermes.kit.errors import HermesError
from hermes.schema.scope import OWNER

log = logging.getLogger(__name__)

AT_ONCE = 5
"""Entries of memory whose removal is proposed in one go."""


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
    if settings.consolidate:
        try:
            await propose_merges(app)
        except HermesError as error:
            log.warning("no merges could be proposed: %s", error)


async def propose_merges(app: App) -> None:
    """What says the same twice waits for the person as proposals."""
    from hermes.memory.doubles import find_doubles, propose_removal  # noqa: PLC0415 - once a week

    proposals = list(await app.learning.curator.propose_merges(ages_of(app.config).keep))
    notebook = app.learning.notebook
    doubles = (await find_doubles(notebook))[:AT_ONCE]
    proposals += [await propose_removal(notebook, double) for double in doubles]
    for one in proposals:
        log.info("proposed: %s (%s)", one.summary, one.why)


async def _is_idle(app: App, long: timedelta) -> bool:
    archive = app.store.seen_by(OWNER)
    latest = await archive.latest()
    return latest is None or app.clock.now() - await archive.active_at(latest.id) >= long
