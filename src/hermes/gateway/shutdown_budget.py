"""Time budget of a gateway shutdown, for the gateway itself and for what waits for it."""

DRAIN_SECONDS = 60.0
"""Seconds running turns get by default."""

COMMAND_SECONDS = 5.0
"""Minimum seconds for commands, however long the turns took."""

SEND_SECONDS = 60.0
"""Seconds for sends in progress: the timeout of one platform call."""

LAST_EDIT_SECONDS = 20.0
"""Maximum seconds, out of those of the turns, for the last edits of progress messages."""

PROGRESS_SECONDS = 5.0
"""Seconds for final edits of progress messages."""

CLEANUP_SECONDS = 30.0
"""Seconds for closing connections, engines and files."""


def shutdown_seconds(drain: float) -> float:
    """Seconds until all work of a gateway has been finished or stored."""
    return drain + COMMAND_SECONDS + SEND_SECONDS + PROGRESS_SECONDS


def stop_timeout(drain: float) -> float:
    """Seconds to wait for the process to exit before killing it."""
    return shutdown_seconds(drain) + CLEANUP_SECONDS
