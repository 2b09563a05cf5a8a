"""A turn in which nothing happens any more: people are told of it, and then it is ended."""

from collections.abc import Awaitable, Callable

from hermes.gateway.runs import ActorRules, Cause, Running
from hermes.kit.clock import Clock

QUIET = (
    "Nothing has happened in this turn for {quiet}. If nothing does for {left} more, I end it; "
    "/stop ends it now."
)


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


def spoken(seconds: float) -> str:
    """Such as `15 minutes`."""
    count, unit = (round(seconds), "second") if seconds < 120 else (round(seconds / 60), "minute")
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
