"""One program at work: its lines in, the tools' answers out, until it ends or its time is over."""

from collections.abc import Awaitable, Callable

import anyio
import msgspec
from msgspec import Raw, Struct

from hermes.kit.text import HEAD
from hermes.ports.sandbox import Process
from hermes.ports.tool import ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.tools.terminal.exit_codes import shell_exit_code

MAX_STDOUT = 50_000
MAX_STDERR = 10_000
KEPT_FACTOR = 4
"""How many times what is shown is kept while the program runs."""
CUT_MARGIN = 4_096
"""Characters beside a gap that may be the half of a secret."""
MAX_LINE = 8_000_000

CallTool = Callable[[str, Raw], Awaitable[ToolOutput]]


class ChildMessage(Struct, frozen=True):
    """What the child says: some output, a call, or its end. One of them is there."""

    out: str = ""
    err: str = ""
    call: str = ""
    args: Raw = Raw(b"{}")
    end: int | None = None


class CallAnswer(Struct, frozen=True):
    text: str
    failed: bool = False


class PrintedText:
    """The beginning and the end of what was printed; the middle may be too much to keep."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin = ""
        self._end = ""
        self.total = 0

    def add(self, text: str) -> None:
        self.total += len(text)
        room = self._limit * KEPT_FACTOR // 2 - len(self._begin)
        self._begin += text[:room]
        self._end = (self._end + text[room:])[-self._limit * KEPT_FACTOR // 4 :]

    @property
    def cut(self) -> bool:
        return self.total > self._limit

    def text(self, clean: Callable[[str], str]) -> str:
        """Cleaned before it is cut, so that no half of a secret is left standing at a cut."""
        if self.total == len(self._begin) + len(self._end):
            whole = clean(self._begin + self._end)
            if len(whole) <= self._limit:
                return whole
            return self._joined(whole, whole)
        begin = self._begin[
            : -min(len(self._begin) - self._begin.rfind("\n") - 1, CUT_MARGIN) or None
        ]
        torn = self._end.find("\n") + 1
        return self._joined(clean(begin), clean(self._end[min(torn or CUT_MARGIN, CUT_MARGIN) :]))

    def _joined(self, begin: str, end: str) -> str:
        """Whole lines from both ends."""
        begin = begin[: int(self._limit * HEAD)]
        end = end[-(self._limit - len(begin)) :]
        begin = begin[: begin.rfind("\n") + 1] or begin
        end = end[end.find("\n") + 1 :] or end
        left_out = max(self.total - len(begin) - len(end), 0)
        return f"{begin}\n[… {left_out:,} characters left out …]\n{end}"


class RunningProgram:
    """Talks with a running child. `calls` counts what it asked for, refused ones included."""

    def __init__(self, process: Process, call: CallTool, most_calls: int) -> None:
        self._process = process
        self._call = call
        self._most = most_calls
        self._decoder = msgspec.json.Decoder(ChildMessage)
        self.out = PrintedText(MAX_STDOUT)
        self.err = PrintedText(MAX_STDERR)
        self.calls = 0
        self.exit_code: int | None = None

    async def run(self, code: str, tools: dict[str, list[str]], limit: anyio.CancelScope) -> None:
        """Until the program ends. While a tool works for it, its own time stands still."""
        await self._process.feed(msgspec.json.encode({"code": code, "tools": tools}) + b"\n")
        waiting = b""
        while data := await self._process.read():
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                await self._hear(line, limit)
            if self.exit_code is not None:
                return
            if len(waiting) > MAX_LINE:
                raise ToolError("execute_code: a call was longer than 8 MB.")
        # It left without a word: killed, or it closed our pipe by itself.
        ended = await self._process.wait()
        self.exit_code = shell_exit_code(ended.exit_code) or 1

    async def _hear(self, data: bytes, limit: anyio.CancelScope) -> None:
        try:
            line = self._decoder.decode(data)
        except msgspec.DecodeError:
            # Somebody found the way to our pipe: it is shown, and believed in nothing.
            self.out.add(data.decode("utf-8", "replace") + "\n")
            return
        self.out.add(line.out)
        self.err.add(line.err)
        if line.end is not None:
            self.exit_code = line.end
        if line.call:
            left = limit.deadline - anyio.current_time()
            limit.deadline = float("inf")
            answer = await self._answer(line)
            limit.deadline = anyio.current_time() + left
            await self._process.feed(msgspec.json.encode(answer) + b"\n")

    async def _answer(self, line: ChildMessage) -> CallAnswer:
        if self.calls >= self._most:
            return CallAnswer(f"More than {self._most} tool calls in one program.", failed=True)
        self.calls += 1
        try:
            output = await self._call(line.call, line.args)
        except ToolError as error:
            return CallAnswer(error.sentence, failed=True)
        text = "\n".join(part.text for part in output.parts if isinstance(part, Text))
        return CallAnswer(text, output.failed)
