"""Dependencies of the chat screen, and its exit message."""

from msgspec import Struct
from textual.message import Message

from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError
from hermes.tui.client import TuiClient
from hermes.tui.display_options import DisplayOptions
from hermes.tui.input_history import InputHistory
from hermes.tui.worker import WorkerThread


class ChatDeps(Struct, frozen=True):
    """Dependencies of the chat screen."""

    client: TuiClient
    turn_worker: WorkerThread
    side_worker: WorkerThread
    history: InputHistory
    clock: Clock
    display: DisplayOptions


class ExitRequest(Message):
    """Ends the application; `trouble` is the error that caused it."""

    def __init__(self, code: int, trouble: HermesError | None = None) -> None:
        super().__init__()
        self.code = code
        self.trouble = trouble
