"""Parse the agent's todo list from the output of the `todo` tool."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.kit.terminal_text import escape_controls, single_line
from hermes.schema.messages import Assistant, Result
from hermes.schema.terminal import RecentHistory

MAX_SHOWN = 6
_DONE = ("[x]", "[-]")
_MARKS = {"[x]": "✓", "[-]": "-", "[>]": "▸"}


class TodoItem(Struct, frozen=True):
    mark: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.mark} {self.text}"


class TodoList(Struct, frozen=True):
    """Lines such as `[x] write the test`."""

    lines: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "TodoList":
        lines = [single_line(line) for line in escape_controls(text).splitlines()]
        return cls(tuple(line for line in lines if line.startswith("[")))

    @property
    def is_open(self) -> bool:
        return any(not line.startswith(_DONE) for line in self.lines)

    @property
    def progress(self) -> str:
        done = sum(line.startswith(_DONE) for line in self.lines)
        return f"{done} of {len(self.lines)} done" if self.lines else ""

    @property
    def heading(self) -> str:
        return f"Todo · {self.progress}"

    @property
    def summary(self) -> str:
        """The heading and the next item; only for an open list."""
        return f"{self.heading} · next: {self.lines[self._current][4:]}"

    def around_current(self) -> tuple[Sequence[TodoItem], int]:
        """The items around the next one, and how many follow them."""
        first = max(min(self._current - 1, len(self.lines) - MAX_SHOWN), 0)
        shown = self.lines[first : first + MAX_SHOWN]
        items = [TodoItem(_MARKS.get(line[:3], "○"), line[4:]) for line in shown]
        return items, len(self.lines) - first - len(shown)

    @property
    def _current(self) -> int:
        places = (n for n, line in enumerate(self.lines) if not line.startswith(_DONE))
        return next(places, len(self.lines))


def last_todo_list(history: RecentHistory) -> str:
    """The last list in a session; empty if there is none."""
    messages = [row.message for row in history.rows]
    answers = [message for message in messages if isinstance(message, Assistant)]
    calls = {call.id for answer in answers for call in answer.calls if call.name == "todo"}
    shown = [
        message.shown
        for message in messages
        if isinstance(message, Result) and message.call in calls and not message.failed
    ]
    return shown[-1] if shown else ""
