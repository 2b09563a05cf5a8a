"""How long the end of a gateway may take: one sum, for itself and for whoever waits for it."""

DRAIN = 60.0
"""Seconds that running turns are given, unless the settings say otherwise."""

COMMANDS = 5.0
"""Seconds that commands are given at least, however long turns took."""

LAST_POSTS = 60.0
"""Seconds for what is being sent: as long as one call to a platform may take."""

FAREWELLS = 5.0
"""Seconds in which posts beside answers that were just delivered are put right."""

SPARE = 30.0
"""Seconds for what comes after that: connections, engines and files are closed."""


def ends_within(drain: float) -> float:
    """Seconds from the wish to end until all of a gateway's work is left in order."""
    return drain + COMMANDS + LAST_POSTS + FAREWELLS


def waited_for(drain: float) -> float:
    """Seconds that whoever told the process to end waits for it, before it is killed."""
    return ends_within(drain) + SPARE
