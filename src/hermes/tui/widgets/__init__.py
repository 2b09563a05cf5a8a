"""Widgets of the terminal UI."""

from textual.app import App
from textual.events import Event
from textual.message import Message
from textual.message_pump import MessagePump


class CopyRequest(Message):
    """Asks for the text to be copied to the clipboard."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def consume(event: Event) -> None:
    """Handle the event here: not in the base class, nor in the parents."""
    event.stop()
    event.prevent_default()


def app_of(pump: MessagePump) -> App[object]:
    return pump.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - the result type of the app is unknown here
