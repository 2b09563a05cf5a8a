"""What a screen is made of, one kind of thing per module."""

from textual.app import App
from textual.message import Message
from textual.message_pump import MessagePump


class CopyRequest(Message):
    """Somebody wants this in the clipboard."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


def app_of(thing: MessagePump) -> App[object]:
    return thing.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - the library leaves open what a program results in
