"""What the chat is made with, and how it says that it is over."""

from msgspec import Struct
from textual.message import Message

from hermes.kit.clock import Clock
from hermes.schema.errors import HermesError
from hermes.tui.client import TuiClient
from hermes.tui.display_options import DisplayOptions
from hermes.tui.input_history import InputHistory
from hermes.tui.worker import WorkerThread


class ChatDeps(Struct, frozen=True):
    """What the chat is made with: somebody to talk to, threads, the time, and what people like."""

    client: TuiClient
    turn_worker: WorkerThread
    side_worker: WorkerThread
    history: InputHistory
    clock: Clock
    display: DisplayOptions


class ExitRequest(Message):
    """Somebody goes, or has to: `trouble` says why."""

    def __init__(self, code: int, trouble: HermesError | None = None) -> None:
        super().__init__()
        self.code = code
        self.trouble = trouble
