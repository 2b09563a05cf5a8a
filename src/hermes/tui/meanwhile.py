"""What is done with words that are said while a turn runs."""

from enum import StrEnum


class Manner(StrEnum):
    INTERRUPT = "interrupt"
    """The turn ends, and they are said instead."""
    QUEUE = "queue"
    """They wait, and get a turn of their own."""
    STEER = "steer"
    """The turn hears them at its next step."""
    COLLECT = "collect"
    """They wait, and all that waits gets one turn."""


INVITES = {
    Manner.INTERRUPT: "Enter interrupts and says this; Ctrl+G steers, Ctrl+N queues",
    Manner.QUEUE: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    Manner.COLLECT: "Enter queues this; Ctrl+G steers, Ctrl+S interrupts",
    Manner.STEER: "Enter steers; Ctrl+N queues, Ctrl+S interrupts",
}
"""What somebody who could type now is told."""
ENTER = {manner: " ".join(words.split()[:2]).rstrip(";") for manner, words in INVITES.items()}
"""The same in short, for whoever has begun to type."""
_CHOSEN = {"/steer": Manner.STEER, "/queue": Manner.QUEUE, "/q": Manner.QUEUE}


def manner_of(word: str) -> Manner:
    """As somebody set it; without a word, what they would expect."""
    return Manner(word) if word in set(Manner) else Manner.INTERRUPT


def meant(line: str, usual: Manner) -> tuple[Manner, str]:
    """What is to be done with a line, and what of it is to be said, if anything.

    Commands never interrupt: those that are not about the turn itself wait for its end.
    """
    head, _, rest = line.strip().partition(" ")
    if head.lower() == "/stop":
        return Manner.INTERRUPT, ""
    if (chosen := _CHOSEN.get(head.lower())) is not None and rest.strip():
        return chosen, rest.strip()
    if head.startswith("/"):
        return Manner.QUEUE, line
    return usual, line
