"""A model that follows instructions in the question and echoes it, so that answers can be checked.

Each `use:NAME` in a question calls the tool NAME, with the JSON object at the end of the question
as arguments if there is one; `long` makes the answer longer than a post. The answer is `re: ` and
the question, followed by the tool results.

The model is served over the chat completions API. Each account has its own URL, so a request shows
whose model was called. A question with `hang:connect` gets no response; with `hang:model` the
response starts and stalls; with `hang:stream` it never ends, nor with `hang:drip`, at reading
speed; with `fail:model` it is rejected.
"""

from collections.abc import Callable, Iterable

import anyio
import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.agent.prompts import prompt_text
from hermes.schema.errors import ModelError
from hermes.testing.fake_openai.frames import DONE, ChatBody, completion, stream_frames
from hermes.testing.fake_openai.script import Call, Reply

ANSWER_PREFIX = "re: "
REFUSED = "This question is not for me."
LONG_ANSWER_LINES = 12
LONG_ANSWER_LINE = "and this is why the answer takes more than one post to say."


class RequestedCall(Struct, frozen=True):
    """A tool call requested by the question."""

    tool: str
    args: str


class ModelInput(Struct, frozen=True):
    """One message to the model: a user message or a tool result."""

    text: str
    result: bool = False


def echo_reply(messages: Iterable[ModelInput]) -> str | RequestedCall:
    """Return the answer to the last question, or the next tool call it requests."""
    question, results = last_question(messages)
    instructions, brace, args = question.partition("{")
    wanted = [word.removeprefix("use:") for word in instructions.split() if word.startswith("use:")]
    if len(results) < len(wanted):
        json_args = brace + args or msgspec.json.encode({"what": question}).decode()
        return RequestedCall(wanted[len(results)], json_args)
    text = "\n".join([f"{ANSWER_PREFIX}{question}", *results])
    if "long" in question.split():
        name = question.split()[0]
        text = "\n\n".join(
            [text, *(f"{name} line {n}: {LONG_ANSWER_LINE}" for n in range(LONG_ANSWER_LINES))]
        )
    return text


def last_question(messages: Iterable[ModelInput]) -> tuple[str, list[str]]:
    """Return the last question of a user and the tool results after it.

    Unanswered questions are joined with the next one, so only the last paragraph counts.
    """
    note = prompt_text("resumed")
    results: list[str] = []
    for message in reversed([*messages]):
        if message.result:
            results.insert(0, message.text)
        elif text := message.text.replace(note, "").strip():
            return text.rpartition("\n\n")[2], results
    raise ModelError("the request contains no question")


class ModelCall(Struct, frozen=True):
    """One model request, with its account, key and question."""

    account: str
    key: str
    question: str
    body: bytes


def _ignore_call(call: ModelCall) -> None:
    """Do nothing; the default callback."""


class FakeModelServer:
    """Serves the echo model; `on_call` is called with every request before it is answered."""

    def __init__(self, on_call: Callable[[ModelCall], None] = _ignore_call) -> None:
        self.on_call = on_call
        self.calls = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/{account}/v1/chat/completions", self._complete)]

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        chat = msgspec.json.decode(body, type=ChatBody)
        messages = [
            ModelInput(item.text(), item.role == "tool")
            for item in chat.messages
            if item.role in {"user", "tool"}
        ]
        self.calls += 1
        account, key = request.match_info["account"], request.headers.get("authorization", "")
        question = last_question(messages)[0]
        self.on_call(ModelCall(account, key, question, body))
        if "hang:" in question:
            return await self._hang(request, chat.model, question)
        if "fail:model" in question:
            return web.json_response({"error": {"message": REFUSED}}, status=400)
        reply = _reply(echo_reply(messages))
        if not chat.stream:
            whole = completion(reply, chat.model, self.calls)
            return web.Response(body=whole, content_type="application/json")
        frames = stream_frames(reply, chat.model, self.calls, usage=True)
        return web.Response(body=b"".join([*frames, DONE]), content_type="text/event-stream")

    async def _hang(self, request: web.Request, model: str, question: str) -> web.StreamResponse:
        if "hang:connect" in question:
            await anyio.sleep_forever()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        reply = Reply("I begin, ", chunk=0)
        first_frames = [*stream_frames(reply, model, self.calls, usage=False)][:2]
        await response.write(b"".join(first_frames))
        pause = 0.001 if "hang:stream" in question else 0.1
        while "hang:stream" in question or "hang:drip" in question:
            await response.write(first_frames[-1])
            await anyio.sleep(pause)
        await anyio.sleep_forever()
        return response


def _reply(answer: str | RequestedCall) -> Reply:
    if isinstance(answer, str):
        return Reply(answer, chunk=0)
    return Reply(calls=[Call(answer.tool, answer.args)], chunk=0)
