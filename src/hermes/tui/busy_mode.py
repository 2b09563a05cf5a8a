"""What is done with words that are said while a turn runs."""

from enum import StrEnum


class BusyMode(StrEnum):
    INTERRUPT = "interrupt"
    """The turn ends, and they are said instead."""
    QUEUE = "queue"
    """They wait, and get a turn of their own."""
    STEER = "steer"
    """The turn hears them at its next step."""
    COLLECT = "collect"
    """They wait, and all that waits gets one turn."""


PLACEHOLDERS = {
    BusyMode.INTERRUPT: "Enter interrupts and says this; Ctrl+G steers, Ctrl+N queues",
    BusyMode.QUEUE: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    BusyMode.COLLECT: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    BusyMode.STEER: "Enter steers; Ctrl+N queues, Ctrl+S interrupts",
}
"""What somebody who could type now is told."""
ENTER_HINTS = {
    manner: " ".join(words.split()[:2]).rstrip(";") for manner, words in PLACEHOLDERS.items()
}
"""The same in short, for whoever has begun to type."""
_MODE_COMMANDS = {"/steer": BusyMode.STEER, "/queue": BusyMode.QUEUE, "/q": BusyMode.QUEUE}


def parse_busy_mode(word: str) -> BusyMode:
    """As somebody set it; without a word, what they would expect."""
    return BusyMode(word) if word in set(BusyMode) else BusyMode.INTERRUPT


def mode_of_line(line: str, usual: BusyMode) -> tuple[BusyMode, str]:
    """What is to be done with a line, and what of it is to be said, if anything.

    Commands never interrupt: those that are not about the turn itself wait for its end.
    """
    head, _, rest = line.strip().partition(" ")
    if head.lower() == "/stop":
        return BusyMode.INTERRUPT, ""
    if (chosen := _MODE_COMMANDS.get(head.lower())) is not None and rest.strip():
        return chosen, rest.strip()
    if head.startswith("/"):
        return BusyMode.QUEUE, line
    return usual, line
