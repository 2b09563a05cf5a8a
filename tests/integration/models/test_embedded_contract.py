"""The embedded model fulfils the model contract, with and without tools."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from msgspec import Raw, structs

from hermes.models.embedded.engine import EngineAddress, EngineProcess
from hermes.models.embedded.model import PAGE_NOT_OPENED
from hermes.models.embedded.weights import ModelFolder, Weights, find_weights
from hermes.ports.model import Model, ModelChunk, ModelRequest
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
)
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User
from hermes.schema.tools import ToolSpec
from hermes.testing.contracts.model import ModelContract, ScriptedAnswer, read_stream
from hermes.testing.fake_openai import (
    Call,
    FakeOpenAiServer,
    Fault,
    Reply,
    Script,
    TokenCounts,
    serve,
)
from support.embedded_engine import embedded_model

NAMED = {
    Unauthorized: "unauthorized",
    OutOfCredit: "out_of_credit",
    RateLimited: "rate_limited",
    Overloaded: "overloaded",
    ContextTooLong: "context_too_long",
    PolicyRefused: "policy",
    ModelNotFound: "model_not_found",
    BadRequest: "bad_request",
}
FINISHES = {
    Stop.END: "stop",
    Stop.TOOLS: "stop",
    Stop.LENGTH: "length",
    Stop.REFUSED: "content_filter",
}
LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"at": {"type": "string"}}})
CHUNK = 3


class RunningEngine:
    """An engine that is already running, at the address of a mock server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def is_loaded(self, weights: Weights, folder: ModelFolder) -> bool:
        return True

    @asynccontextmanager
    async def acquire(self, weights: Weights, folder: ModelFolder) -> AsyncGenerator[EngineProcess]:
        running = EngineProcess(weights)
        running.address = EngineAddress(self._url, "token")
        yield running


class ModelWithTool:
    """The same model, with a tool in each request."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.provider, self.window = model.name, model.provider, model.window

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]:
        return self._model.stream(structs.replace(request, tools=[LOOK]))


def chosen(played: ScriptedAnswer) -> str:
    """The answer in the format of the grammar."""
    text = "".join(played.text)
    objects = [json.dumps({"reply": text}, ensure_ascii=False)] if text else []
    objects += [
        f'{{"tool": "{name}", "id": "{identity}", "args": {args}}}'
        for identity, name, args in played.calls
    ]
    return "\n".join(objects)


class ChoosingRig:
    server: FakeOpenAiServer

    @asynccontextmanager
    async def playing(self, *answers: ScriptedAnswer) -> AsyncIterator[Model]:
        async with serve(Script(replies=[self.reply(one) for one in answers])) as self.server:
            folder = ModelFolder(Path("/nowhere"))
            model = embedded_model(
                RunningEngine(self.server.url), find_weights("smollm2-135m"), folder
            )
            yield self.asked(model)

    def asked(self, model: Model) -> Model:
        return ModelWithTool(model)

    def reply(self, played: ScriptedAnswer) -> Reply:
        usage = played.usage
        written = chosen(played)
        return Reply(
            text=written,
            reasoning="".join(played.thought),
            finish=FINISHES[played.stop],
            usage=TokenCounts(usage.input, usage.output, usage.cache_read, usage.reasoning),
            chunk=CHUNK,
            fault=fault(played, written),
        )

    async def saw_disconnect(self) -> bool:
        last = self.server.requests[-1]
        with anyio.fail_after(60):
            await last.ended.wait()
        return not last.completed


class TalkingRig(ChoosingRig):
    def asked(self, model: Model) -> Model:
        return model

    def reply(self, played: ScriptedAnswer) -> Reply:
        text = "".join(played.text)
        calls = [Call(name, args, identity) for identity, name, args in played.calls]
        plain = super().reply(played)
        plain.text, plain.calls, plain.fault = text, calls, fault(played, text)
        return plain


def fault(played: ScriptedAnswer, written: str) -> Fault | None:
    if played.error:
        return Fault("status", named=NAMED[played.error])
    chunks = -(-len(written) // CHUNK)
    if played.hangs:
        return Fault("hang", after=chunks)
    return Fault("cut", after=chunks) if played.breaks else None


class TestChoosing(ModelContract):
    @pytest.fixture
    def rig(self) -> ChoosingRig:
        return ChoosingRig()


@pytest.mark.parametrize(("failed", "requests"), [(False, 2), (True, 1)])
async def test_repeated_call_is_replaced(failed: bool, requests: int) -> None:
    look = ScriptedAnswer(calls=(("call_9", "look", '{"at": "x"}'),), stop=Stop.TOOLS)
    rig = ChoosingRig()
    history = [
        User("u1", (Text("look"),)),
        Assistant("a1", (ToolCall("call_1", "look", Raw(b'{"at": "x"}')),), Stop.TOOLS),
        Result("r1", "call_1", (Text("it is blue"),), failed=failed),
    ]
    async with rig.playing(look, ScriptedAnswer(text=("It is blue.",))) as model:
        record = await read_stream(model, ModelRequest("", history))
    assert len(rig.server.requests) == requests
    assert record.answer.text == ("" if failed else "It is blue.")
    assert [call.name for call in record.answer.calls] == (["look"] if failed else [])


async def test_unopened_page_is_noted() -> None:
    page = "https://example.org/news"
    tried = ToolCall("call_1", "terminal", Raw(f'{{"command": "curl {page}"}}'.encode()))
    history = [
        User("u1", (Text(f"Fetch {page} and tell me its title."),)),
        Assistant("a1", (tried,), Stop.TOOLS),
        Result("r1", "call_1", (Text('{"output": "curl: (6) no such host", "exit_code": 6}'),)),
    ]
    made_up = "The title is Good News."
    async with ChoosingRig().playing(ScriptedAnswer(text=(made_up,))) as model:
        record = await read_stream(model, ModelRequest("", history))
    assert record.answer.text == f"{made_up}\n\n{PAGE_NOT_OPENED.format(page=page)}"


class TestTalking(ModelContract):
    @pytest.fixture
    def rig(self) -> TalkingRig:
        return TalkingRig()
