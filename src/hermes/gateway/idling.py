"""A turn in which nothing happens any more: people are told of it, and then it is ended."""

from collections.abc import Awaitable, Callable

from hermes.gateway.runs import ActorRules, Cause, Running
from hermes.kit.clock import Clock

QUIET = (
    "Nothing has happened in this turn for {quiet}. If nothing does for {left} more, I end it; "
    "/stop ends it now."
)
STILL = "Still at it, after {time}."


async def end_when_idle(
    run: Running, rules: ActorRules, clock: Clock, warn: Callable[[str], Awaitable[None]]
) -> None:
    """Until the run is ended here, or cancelled. `warn` tells the person, once for each silence."""
    if rules.idle <= 0:
        return
    warned_since: float | None = None
    while True:
        # Whoever waits for a person is not idle; questions have a time limit of their own.
        quiet = 0.0 if run.asking else clock.monotonic() - run.active
        warns = 0 < rules.idle_warning < rules.idle and warned_since != run.active
        limit = rules.idle_warning if warns else rules.idle
        if quiet < limit:
            await clock.sleep(limit - quiet)
        elif warns:
            warned_since = run.active
            left = rules.idle - rules.idle_warning
            await warn(QUIET.format(quiet=spoken(rules.idle_warning), left=spoken(left)))
        else:
            run.cancel(Cause.IDLE)
            return


async def tell_that_it_works(run: Running, rules: ActorRules, clock: Clock) -> None:
    """Until cancelled: a line in its post now and then, unless it waits for a person."""
    if rules.notify <= 0 or run.bubble is None:
        return
    while True:
        await clock.sleep(rules.notify)
        if not run.asking:
            run.bubble.still(STILL.format(time=spoken(clock.monotonic() - run.begun)))


def spoken(seconds: float) -> str:
    """Such as `15 minutes`."""
    if seconds < 120:
        count, unit = round(seconds), "second"
    elif seconds < 2 * 3600:
        count, unit = round(seconds / 60), "minute"
    else:
        count, unit = round(seconds / 3600), "hour"
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
