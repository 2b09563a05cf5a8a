"""Options of the terminal UI: what is shown, and what a line entered during a turn does."""

from msgspec import Struct

from hermes.schema.terminal import BusyMode

_QUEUE_PLACEHOLDER = "Enter queues this; Ctrl+G steers, Ctrl+S interrupts"
BUSY_PLACEHOLDERS = {
    BusyMode.INTERRUPT: "Enter interrupts and sends this; Ctrl+G steers, Ctrl+N queues",
    BusyMode.QUEUE: _QUEUE_PLACEHOLDER,
    BusyMode.COLLECT: _QUEUE_PLACEHOLDER,
    BusyMode.STEER: "Enter steers; Ctrl+N queues, Ctrl+S interrupts",
}
"""Placeholder of the prompt during a turn."""
_MODE_COMMANDS = {"/steer": BusyMode.STEER, "/queue": BusyMode.QUEUE, "/q": BusyMode.QUEUE}


def enter_hint(mode: BusyMode) -> str:
    """The start of the placeholder, for the status bar."""
    return " ".join(BUSY_PLACEHOLDERS[mode].split()[:2]).rstrip(";")


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
    if head.startswith(("/", "!")):
        return BusyMode.QUEUE, line
    return default, line


class DisplayOptions(Struct, frozen=True, kw_only=True):
    """What is shown, and how. Zero means no limit."""

    reasoning: bool = True
    reasoning_open: bool = False
    raw: bool = False  # answers are shown as Markdown source
    diffs: bool = True
    cost: bool = False
    times: bool = False  # timestamps on user messages
    bell: bool = False  # at the end of a turn
    compact: bool = False
    preview_length: int = 0  # characters shown of a tool call
    paste_lines: int = 5  # longer pasted text is collapsed
    paste_size: int = 2000


DEFAULT_OPTIONS = DisplayOptions()


def parse_toggle(word: str, *, current: bool) -> bool:
    """Parse `on` or `off`; without a word, invert."""
    return word == "on" if word else not current
