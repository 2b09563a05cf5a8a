"""Read the times at which messages were written, as platforms give them."""

from datetime import UTC, datetime


def time_at(seconds: float | str) -> datetime | None:
    """The moment this many seconds after the epoch; None if it is not known."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC) if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


def iso_time(text: str) -> datetime | None:
    """None without a time zone, or if it is not a time."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else None
