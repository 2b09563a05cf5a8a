"""Serve the echo model of the fake platform over the chat completions API.

Each account has its own URL, so a request shows whose model was called. A question with
`hang:connect` gets no response; with `hang:model` the response starts and stalls; with
`hang:stream` it never ends; with `fail:model` it is refused.
"""

from collections.abc import Callable

import anyio
import msgspec
from aiohttp import web
from msgspec import Struct

from hermes.testing.echo_model import ModelInput, RequestedCall, echo_reply, last_question
from hermes.testing.fake_openai.frames import DONE, completion, stream_frames
from hermes.testing.fake_openai.script import Call, Reply

REFUSED = "This question is not for me."


class ModelCall(Struct, frozen=True):
    """One model request, with its account, key and question."""

    account: str
    key: str
    question: str
    body: bytes


class _Part(Struct):
    text: str = ""


class _RequestMessage(Struct):
    role: str = ""
    content: str | list[_Part] | None = None

    def heard(self) -> ModelInput:
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        return ModelInput(text, self.role == "tool")


class _ChatRequest(Struct):
    messages: list[_RequestMessage]
    model: str = ""
    stream: bool = False


_decoder = msgspec.json.Decoder(_ChatRequest)


def _ignore_call(thought: ModelCall) -> None:
    """Do nothing; the default callback."""


class FakeModelServer:
    """Serves the echo model; `heard` is called with every request before it is answered."""

    def __init__(self, heard: Callable[[ModelCall], None] = _ignore_call) -> None:
        self.heard = heard
        self.thoughts = 0

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/{account}/v1/chat/completions", self._complete)]

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = _decoder.decode(body)
        messages = [one.heard() for one in asked.messages if one.role in {"user", "tool"}]
        self.thoughts += 1
        account, key = request.match_info["account"], request.headers.get("authorization", "")
        question = last_question(messages)[0]
        self.heard(ModelCall(account, key, question, body))
        if "hang:" in question:
            return await self._hang(request, asked.model, question)
        if "fail:model" in question:
            return web.json_response({"error": {"message": REFUSED}}, status=400)
        reply = _reply(echo_reply(messages))
        if not asked.stream:
            whole = completion(reply, asked.model, self.thoughts)
            return web.Response(body=whole, content_type="application/json")
        frames = stream_frames(reply, asked.model, self.thoughts, usage=True)
        return web.Response(body=b"".join([*frames, DONE]), content_type="text/event-stream")

    async def _hang(self, request: web.Request, model: str, question: str) -> web.StreamResponse:
        if "hang:connect" in question:
            await anyio.sleep_forever()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        reply = Reply("I begin, ", chunk=0)
        first_frames = [*stream_frames(reply, model, self.thoughts, usage=False)][:2]
        await response.write(b"".join(first_frames))
        while "hang:stream" in question:
            await response.write(first_frames[-1])
            await anyio.sleep(0.001)
        await anyio.sleep_forever()
        return response


def _reply(answer: str | RequestedCall) -> Reply:
    if isinstance(answer, str):
        return Reply(answer, chunk=0)
    return Reply(calls=[Call(answer.tool, answer.args)], chunk=0)
