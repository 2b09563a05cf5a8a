"""The wish to have something in the clipboard."""

from textual.message import Message


class Copied(Message):
    """Somebody wants this in the clipboard."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
