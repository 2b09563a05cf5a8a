"""What the chat is made with, and how it says that it is over."""

from msgspec import Struct
from textual.message import Message

from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError
from hermes.tui.backroom import Backroom
from hermes.tui.companion import Companion
from hermes.tui.history import History
from hermes.tui.taste import Taste


class House(Struct, frozen=True):
    """What the chat is made with: somebody to talk to, threads, the time, and what people like."""

    companion: Companion
    backroom: Backroom
    aside: Backroom
    history: History
    clock: Clock
    taste: Taste


class Going(Message):
    """Somebody goes, or has to: `trouble` says why."""

    def __init__(self, code: int, trouble: HermesError | None = None) -> None:
        super().__init__()
        self.code = code
        self.trouble = trouble
