"""Contract of model drivers: subclass `ModelContract` and provide the fixture `rig`."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import pytest
from msgspec import Raw, Struct

from hermes.ports.model import Model, ModelChunk, ModelRequest
from hermes.schema.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    OutOfCredit,
    Overloaded,
    PolicyRefused,
    RateLimited,
    Unauthorized,
    Unreachable,
)
from hermes.schema.events import ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Reasoning, Result, Stop, Text, ToolCall, Usage, User

REQUEST = ModelRequest("Be brief.", [User("u1", (Text("hello"),))])

ERRORS: tuple[type[ModelError], ...] = (
    Unauthorized, OutOfCredit, RateLimited, Overloaded, ContextTooLong, PolicyRefused,
    ModelNotFound, BadRequest,
)  # fmt: skip


class ScriptedAnswer(Struct, frozen=True, kw_only=True):
    """One answer for the fake provider to send, independent of any wire format."""

    text: tuple[str, ...] = ()
    thought: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    """Each is an id, a tool name and the arguments as JSON text."""
    stop: Stop = Stop.END
    usage: Usage = Usage(10, 5)
    error: type[ModelError] | None = None
    hangs: bool = False
    """Send nothing after the text, but keep the connection open."""
    breaks: bool = False
    """Break the connection after the text."""


class ModelRig(Protocol):
    """Sets up a driver together with a fake provider."""

    def playing(self, *answers: ScriptedAnswer) -> AbstractAsyncContextManager[Model]: ...

    async def saw_disconnect(self) -> bool:
        """Wait until the fake provider has noticed the end of the last stream."""
        ...


class StreamRecord:
    """All chunks of one stream."""

    def __init__(self) -> None:
        self.chunks: list[ModelChunk] = []

    @property
    def answer(self) -> Assistant:
        (answer,) = (chunk for chunk in self.chunks if isinstance(chunk, Assistant))
        return answer

    @property
    def text(self) -> str:
        """The deltas since the last reset."""
        text = ""
        for chunk in self.chunks:
            if isinstance(chunk, StreamReset):
                text = ""
            elif isinstance(chunk, TextDelta):
                text += chunk.text
        return text

    @property
    def thought(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, ReasoningDelta))


async def read_stream(
    model: Model, request: ModelRequest = REQUEST, record: StreamRecord | None = None
) -> StreamRecord:
    record = record or StreamRecord()
    async with model.stream(request) as chunks:
        async for chunk in chunks:
            record.chunks.append(chunk)
    return record


class ModelContract:
    pytestmark = pytest.mark.anyio

    async def test_name_provider_and_window_are_set(self, rig: ModelRig) -> None:
        async with rig.playing() as model:
            assert model.name
            assert model.provider
            assert model.window > 0

    async def test_stream_ends_with_exactly_one_answer(self, rig: ModelRig) -> None:
        async with rig.playing(ScriptedAnswer(text=("Hel", "lo ", "there\n"))) as model:
            record = await read_stream(model)
        assert isinstance(record.chunks[-1], Assistant)
        assert [type(chunk) for chunk in record.chunks].count(Assistant) == 1
        assert record.text == record.answer.text == "Hello there\n"
        assert record.answer.stop is Stop.END
        assert record.answer.id

    async def test_reasoning_is_separate_from_the_answer(self, rig: ModelRig) -> None:
        async with rig.playing(ScriptedAnswer(thought=("let me ", "see"), text=("42",))) as model:
            record = await read_stream(model)
        assert record.thought == "let me see"
        assert record.text == "42"
        assert [type(part) for part in record.answer.parts] == [Reasoning, Text]
        assert record.answer.text == "42"

    @pytest.mark.parametrize(
        "args",
        [
            "{}",
            '{"path": "a/b",  "n":1.0}',
            '{"b":1,"a":[1,2,{"x":null}]}',
            '{"text":"\\u00e9\\n\\"quoted\\" \\ud83d\\ude00"}',
            '{"text":"äöü 日本 😀"}',
        ],
    )
    async def test_call_arguments_are_kept_byte_for_byte(self, rig: ModelRig, args: str) -> None:
        async with rig.playing(
            ScriptedAnswer(calls=(("call_1", "look", args),), stop=Stop.TOOLS)
        ) as model:
            record = await read_stream(model)
        assert record.answer.calls == [ToolCall("call_1", "look", Raw(args.encode()))]
        assert record.answer.stop is Stop.TOOLS

    async def test_calls_keep_their_order_and_come_with_text(self, rig: ModelRig) -> None:
        calls = tuple((f"call_{n}", f"tool_{n}", f'{{"n":{n}}}') for n in range(4))
        async with rig.playing(
            ScriptedAnswer(text=("On it.",), calls=calls, stop=Stop.TOOLS)
        ) as model:
            record = await read_stream(model)
        assert [(call.id, call.name) for call in record.answer.calls] == [
            (call_id, name) for call_id, name, _ in calls
        ]
        assert record.answer.text == record.text == "On it."

    async def test_usage_is_reported(self, rig: ModelRig) -> None:
        usage = Usage(input=120, output=30, cache_read=100, reasoning=12)
        async with rig.playing(ScriptedAnswer(text=("ok",), usage=usage)) as model:
            record = await read_stream(model)
        assert record.answer.usage == usage

    @pytest.mark.parametrize("stop", [Stop.LENGTH, Stop.REFUSED])
    async def test_unusual_stop_reason_is_reported(self, rig: ModelRig, stop: Stop) -> None:
        async with rig.playing(ScriptedAnswer(text=("half an ans",), stop=stop)) as model:
            record = await read_stream(model)
        assert record.answer.stop is stop

    async def test_empty_answer_is_accepted(self, rig: ModelRig) -> None:
        async with rig.playing(ScriptedAnswer()) as model:
            record = await read_stream(model)
        assert record.answer.parts == ()

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
    async def test_provider_error_raises_its_type(
        self, rig: ModelRig, error: type[ModelError]
    ) -> None:
        async with rig.playing(ScriptedAnswer(error=error)) as model:
            with pytest.raises(error) as caught:
                await read_stream(model)
        assert type(caught.value) is error
        assert str(caught.value)

    async def test_broken_connection_raises_unreachable(self, rig: ModelRig) -> None:
        record = StreamRecord()
        async with rig.playing(ScriptedAnswer(text=("Hello wor",), breaks=True)) as model:
            with pytest.raises(Unreachable):
                await read_stream(model, record=record)
        assert record.text == "Hello wor"
        assert not any(isinstance(chunk, Assistant) for chunk in record.chunks)

    async def test_leaving_early_closes_the_connection(self, rig: ModelRig) -> None:
        async with rig.playing(ScriptedAnswer(text=("Hello",), hangs=True)) as model:
            async with model.stream(REQUEST) as chunks:
                await _first_delta(chunks)
            assert await rig.saw_disconnect()

    async def test_cancelling_closes_the_connection(self, rig: ModelRig) -> None:
        started = anyio.Event()

        async def ask(model: Model) -> None:
            async with model.stream(REQUEST) as chunks:
                async for _ in chunks:
                    started.set()

        async with rig.playing(ScriptedAnswer(text=("Hello",), hangs=True)) as model:
            async with anyio.create_task_group() as group:
                group.start_soon(ask, model)
                await started.wait()
                group.cancel_scope.cancel()
            assert await rig.saw_disconnect()

    async def test_request_after_a_failure_succeeds(self, rig: ModelRig) -> None:
        async with rig.playing(
            ScriptedAnswer(error=Overloaded), ScriptedAnswer(text=("fine",))
        ) as model:
            with pytest.raises(Overloaded):
                await read_stream(model)
            assert (await read_stream(model)).text == "fine"

    async def test_history_with_calls_and_results_can_be_sent(self, rig: ModelRig) -> None:
        first = ScriptedAnswer(calls=(("call_1", "look", '{"at":"x"}'),), stop=Stop.TOOLS)
        async with rig.playing(first, ScriptedAnswer(text=("It is x.",))) as model:
            answer = (await read_stream(model)).answer
            result = Result("r1", "call_1", (Text("x"),))
            history = [*REQUEST.messages, answer, result]
            record = await read_stream(model, ModelRequest(REQUEST.system, history))
        assert record.answer.text == "It is x."

    async def test_reasoning_can_be_sent_back(self, rig: ModelRig) -> None:
        first = ScriptedAnswer(
            thought=("let me ", "see"),
            text=("On it.",),
            calls=(("call_1", "look", "{}"), ("call_2", "look", "{}")),
            stop=Stop.TOOLS,
        )
        async with rig.playing(first, ScriptedAnswer(text=("Done.",))) as model:
            answer = (await read_stream(model)).answer
            results = [Result(f"r{n}", f"call_{n}", (Text("x"),)) for n in (1, 2)]
            history = [*REQUEST.messages, answer, *results]
            record = await read_stream(model, ModelRequest(REQUEST.system, history, effort="high"))
        assert record.answer.text == "Done."

    async def test_streams_run_concurrently(self, rig: ModelRig) -> None:
        answers = [ScriptedAnswer(text=("same",))] * 5
        texts: list[str] = []

        async def ask(model: Model) -> None:
            texts.append((await read_stream(model)).text)

        async with rig.playing(*answers) as model, anyio.create_task_group() as group:
            for _ in answers:
                group.start_soon(ask, model)
        assert texts == ["same"] * 5


async def _first_delta(chunks: AsyncIterator[ModelChunk]) -> None:
    async for chunk in chunks:
        if isinstance(chunk, TextDelta):
            return


def scripted_deltas(played: ScriptedAnswer) -> Sequence[ModelChunk]:
    """Return the deltas of an answer as chunks."""
    return [*map(ReasoningDelta, played.thought), *map(TextDelta, played.text)]


def scripted_message(played: ScriptedAnswer, model: str = "", provider: str = "") -> Assistant:
    """Return the message that a driver should assemble from the answer."""
    parts: list[Text | Reasoning | ToolCall] = []
    if played.thought:
        parts.append(Reasoning("".join(played.thought)))
    if played.text:
        parts.append(Text("".join(played.text)))
    parts += [ToolCall(i, name, Raw(args.encode())) for i, name, args in played.calls]
    return Assistant("msg_1", tuple(parts), played.stop, played.usage, model, provider)
