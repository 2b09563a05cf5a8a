"""Talk to a running program: relay its tool calls and collect its output until it ends."""

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
"""Multiple of the shown output that is kept while the program runs."""
CUT_MARGIN = 4_096
"""Characters next to a cut that may be part of a secret."""
MAX_LINE = 8_000_000

CallTool = Callable[[str, Raw], Awaitable[ToolOutput]]


class ChildMessage(Struct, frozen=True):
    """A message from the child: output, a call, or its end."""

    out: str = ""
    err: str = ""
    call: str = ""
    args: Raw = Raw(b"{}")
    end: int | None = None


class CallAnswer(Struct, frozen=True):
    text: str
    failed: bool = False


class PrintedText:
    """Keeps the beginning and the end of what was printed; the middle may be dropped."""

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
        """Return the text, redacted before it is cut, so that no partial secret remains."""
        if self.total == len(self._begin) + len(self._end):
            whole = clean(self._begin + self._end)
            if len(whole) <= self._limit:
                return whole
            return self._join_ends(whole, whole)
        begin = self._begin[
            : -min(len(self._begin) - self._begin.rfind("\n") - 1, CUT_MARGIN) or None
        ]
        line_end = self._end.find("\n") + 1
        return self._join_ends(
            clean(begin), clean(self._end[min(line_end or CUT_MARGIN, CUT_MARGIN) :])
        )

    def _join_ends(self, begin: str, end: str) -> str:
        """Join whole lines from both ends."""
        begin = begin[: int(self._limit * HEAD)]
        end = end[-(self._limit - len(begin)) :]
        begin = begin[: begin.rfind("\n") + 1] or begin
        end = end[end.find("\n") + 1 :] or end
        left_out = max(self.total - len(begin) - len(end), 0)
        return f"{begin}\n[… {left_out:,} characters left out …]\n{end}"


class RunningProgram:
    """Exchanges messages with a running child; `calls` includes refused ones."""

    def __init__(self, process: Process, call: CallTool, max_calls: int) -> None:
        self._process = process
        self._call = call
        self._max_calls = max_calls
        self._decoder = msgspec.json.Decoder(ChildMessage)
        self.out = PrintedText(MAX_STDOUT)
        self.err = PrintedText(MAX_STDERR)
        self.calls = 0
        self.exit_code: int | None = None

    async def run(self, code: str, tools: dict[str, list[str]], limit: anyio.CancelScope) -> None:
        """Run until the program ends. Its time limit is suspended while a tool runs."""
        await self._process.write_stdin(msgspec.json.encode({"code": code, "tools": tools}) + b"\n")
        rest = b""
        while data := await self._process.read():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._handle(line, limit)
            if self.exit_code is not None:
                return
            if len(rest) > MAX_LINE:
                raise ToolError("execute_code: a call exceeded 8 MB.")
        # It ended without a message: killed, or it closed our pipe.
        exit_ = await self._process.wait()
        self.exit_code = shell_exit_code(exit_.exit_code) or 1

    async def _handle(self, data: bytes, limit: anyio.CancelScope) -> None:
        try:
            message = self._decoder.decode(data)
        except msgspec.DecodeError:
            # The program wrote to our pipe directly: show it, but do not act on it.
            self.out.add(data.decode("utf-8", "replace") + "\n")
            return
        self.out.add(message.out)
        self.err.add(message.err)
        if message.end is not None:
            self.exit_code = message.end
        if message.call:
            left = limit.deadline - anyio.current_time()
            limit.deadline = float("inf")
            answer = await self._answer(message)
            limit.deadline = anyio.current_time() + left
            await self._process.write_stdin(msgspec.json.encode(answer) + b"\n")

    async def _answer(self, message: ChildMessage) -> CallAnswer:
        if self.calls >= self._max_calls:
            return CallAnswer(
                f"More than {self._max_calls} tool calls in one program.", failed=True
            )
        self.calls += 1
        try:
            output = await self._call(message.call, message.args)
        except ToolError as error:
            return CallAnswer(error.sentence, failed=True)
        text = "\n".join(part.text for part in output.parts if isinstance(part, Text))
        return CallAnswer(text, output.failed)
