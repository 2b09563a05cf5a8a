"""Decide what happens to a line entered while a turn is running."""

from enum import StrEnum


class BusyMode(StrEnum):
    INTERRUPT = "interrupt"
    """Stop the turn and submit the line."""
    QUEUE = "queue"
    """Queue the line for a turn of its own."""
    STEER = "steer"
    """Pass the line to the turn at its next step."""
    COLLECT = "collect"
    """Queue the line; all queued lines share one turn."""


PLACEHOLDERS = {
    BusyMode.INTERRUPT: "Enter interrupts and sends this; Ctrl+G steers, Ctrl+N queues",
    BusyMode.QUEUE: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    BusyMode.COLLECT: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    BusyMode.STEER: "Enter steers; Ctrl+N queues, Ctrl+S interrupts",
}
"""Placeholder of the prompt during a turn."""
ENTER_HINTS = {mode: " ".join(text.split()[:2]).rstrip(";") for mode, text in PLACEHOLDERS.items()}
"""Short form for the status bar."""
_MODE_COMMANDS = {"/steer": BusyMode.STEER, "/queue": BusyMode.QUEUE, "/q": BusyMode.QUEUE}


def parse_busy_mode(word: str) -> BusyMode:
    """Parse the setting; the default is to interrupt."""
    return BusyMode(word) if word in set(BusyMode) else BusyMode.INTERRUPT


def mode_of_line(line: str, default: BusyMode) -> tuple[BusyMode, str]:
    """Return the mode of a line and the text to submit, which may be empty.

    Commands never interrupt: those that do not concern the turn are queued.
    """
    head, _, rest = line.strip().partition(" ")
    if head.lower() == "/stop":
        return BusyMode.INTERRUPT, ""
    if (chosen := _MODE_COMMANDS.get(head.lower())) is not None and rest.strip():
        return chosen, rest.strip()
    if head.startswith("/"):
        return BusyMode.QUEUE, line
    return default, line
