"""How long the end of a gateway may take: one sum, for itself and for whoever waits for it."""

DRAIN_SECONDS = 60.0
"""Seconds that running turns are given, unless the settings say otherwise."""

COMMAND_SECONDS = 5.0
"""Seconds that commands are given at least, however long turns took."""

SEND_SECONDS = 60.0
"""Seconds for what is being sent: as long as one call to a platform may take."""

PROGRESS_SECONDS = 5.0
"""Seconds in which posts beside answers that were just delivered are put right."""

CLEANUP_SECONDS = 30.0
"""Seconds for what comes after that: connections, engines and files are closed."""


def shutdown_seconds(drain: float) -> float:
    """Seconds from the wish to end until all of a gateway's work is left in order."""
    return drain + COMMAND_SECONDS + SEND_SECONDS + PROGRESS_SECONDS


def stop_timeout(drain: float) -> float:
    """Seconds that whoever told the process to end waits for it, before it is killed."""
    return shutdown_seconds(drain) + CLEANUP_SECONDS
