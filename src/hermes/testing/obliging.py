"""A model that does what the question says and answers it by name, so that answers can be judged.

`use:NAME` in a question calls the tool NAME, once for each time it is written, with the JSON object
at the question's end if there is one; `long` makes the answer longer than a post. The answer is
`re: ` and the question, then what the tools said.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio.lowlevel
import msgspec
from msgspec import Raw

from hermes.agent.prompts import prompt_text
from hermes.kit.ids import new_id
from hermes.ports.model import Chunk, Request
from hermes.schema.errors import ModelError
from hermes.schema.events import TextDelta
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    Stop,
    Text,
    ToolCall,
    Usage,
    User,
    text_of,
)

ANSWER = "re: "
LINES = 12
LONG = "and this is why the answer takes more than one post to say."


class Obliging:
    """`heard` is told of every request before it is answered."""

    def __init__(self, heard: Callable[[Request], None] | None = None) -> None:
        self._heard = heard

    @property
    def name(self) -> str:
        return "obliging"

    @property
    def provider(self) -> str:
        return "testing"

    @property
    def window(self) -> int:
        return 1_000_000

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[Chunk]]:
        if self._heard is not None:
            self._heard(request)
        yield self._answer(request)

    async def _answer(self, request: Request) -> AsyncGenerator[Chunk]:
        await anyio.lowlevel.checkpoint()
        question, results = asked(request.messages)
        words, brace, args = question.partition("{")
        wanted = [word.removeprefix("use:") for word in words.split() if word.startswith("use:")]
        usage = Usage(input=10, output=5)
        if len(results) < len(wanted):
            args = Raw((brace + args).encode() or msgspec.json.encode({"what": question}))
            call = ToolCall(new_id("call"), wanted[len(results)], args)
            yield Assistant(
                new_id("msg"), (call,), Stop.TOOLS, usage, model=self.name, provider=self.provider
            )
            return
        text = "\n".join([f"{ANSWER}{question}", *results])
        if "long" in question.split():
            name = question.split()[0]
            text = "\n\n".join([text, *(f"{name} line {n}: {LONG}" for n in range(LINES))])
        yield TextDelta(text)
        yield Assistant(
            new_id("msg"), (Text(text),), Stop.END, usage, model=self.name, provider=self.provider
        )


def asked(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The last question a person asked, and what the tools said since.

    One that got no answer is joined with the next, so a question is one paragraph.
    """
    note = prompt_text("resumed")
    results: list[str] = []
    for message in reversed(messages):
        if isinstance(message, Result):
            results.insert(0, text_of(message))
        elif isinstance(message, User) and (text := text_of(message).replace(note, "").strip()):
            return text.rpartition("\n\n")[2], results
    raise ModelError("nothing was asked")
