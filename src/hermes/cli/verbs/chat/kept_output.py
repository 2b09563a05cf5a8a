"""Keep what the line-mode chat can show again: long tool outputs and the todo list."""

from collections import deque

from hermes.schema.errors import UsageError
from hermes.tui.todo_list import TodoList

MAX_KEPT = 20


class KeptOutput:
    """`hint` is shown at a folded output and says how to see all of it."""

    def __init__(self, hint: str = "") -> None:
        self.hint = hint
        self.todo = TodoList()
        self._outputs: deque[str] = deque(maxlen=MAX_KEPT)

    def add(self, text: str) -> None:
        """Keep an output of which only a part was shown."""
        self._outputs.append(text)

    def output(self, number: int) -> str:
        """Return the output numbered from the newest, which is 1. Raises `UsageError`."""
        if not self._outputs:
            raise UsageError("No long output has been shortened in this chat yet.")
        if number > len(self._outputs):
            raise UsageError("There are not that many long outputs.")
        return self._outputs[-number]
