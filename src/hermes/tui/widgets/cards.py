"""What the agent does between its words: calls of tools, and thoughts."""

from textual.content import Content

from hermes.kit.plain import flat, harmless
from hermes.kit.text import plural
from hermes.schema.messages import Result, ToolCall
from hermes.tui.calls import behind, headline, is_list, verdict
from hermes.tui.taste import Taste
from hermes.tui.widgets.fold import Fold, Head

WORTH_TELLING = 0.1
"""Seconds from which on it is told how long a call took."""
_PROGRESS = 8_000


class ToolCard(Fold):
    def __init__(self, call: ToolCall, taste: Taste) -> None:
        self.call = call
        self._line = headline(call, taste.preview)
        self._opens = taste.diffs
        self._result: Result | None = None
        self._progress = ""
        super().__init__(Head("●", "$accent", self._line, "running"))

    @property
    def plain(self) -> str:
        sign = "●" if self._result is None else "✗" if self._result.failed else "✓"
        return f"{sign} {self._line}"

    def hidden(self) -> Content:
        return behind(self.call, self._result, self._progress)

    def go_on(self, text: str) -> None:
        """One more piece of output; the line shows the last of it."""
        self._progress = (self._progress + text)[-_PROGRESS:]
        last = flat(self._progress.rstrip().rpartition("\n")[2])
        self.head.tell("●", "$accent", f"{self._line}  {last}" if last else self._line, "running")
        self.renew()

    async def end(self, result: Result, took: float) -> None:
        self._result = result
        how = verdict(result)
        time = f"{took:.1f} s" if took >= WORTH_TELLING else ""
        end = " · ".join(filter(None, (how.text, time)))
        if result.failed:
            self.head.tell("✗", "$error", self._line, end or "failed")
        else:
            self.head.tell("✓", "$success", self._line, end)
        self._progress = ""
        self.renew()
        if is_list(self.call, result) or (self._opens and how.diff and how.short):
            await self.open()

    def give_up(self) -> None:
        """The turn ended, and nobody said what became of the call."""
        if self._result is None:
            self.head.tell("✗", "$warning", self._line, "interrupted")


class Thinking(Fold):
    plain = ""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._length = 0
        super().__init__(Head("○", "dim", "thinking…"))
        self.add_class("thinking")

    def hidden(self) -> Content:
        return Content.styled(harmless("".join(self._words)).strip(), "dim italic")

    def add(self, text: str) -> None:
        self._words.append(text)
        self._length += len(text)
        self.renew()

    def end(self) -> None:
        self.head.tell("○", "dim", "thought", plural(self._length, "character"))
