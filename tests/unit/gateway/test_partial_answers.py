"""A partial answer left by a crash is not delivered; the turn is resumed."""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio

from hermes.ports.model import ModelChunk
from hermes.schema.events import TextDelta
from hermes.schema.messages import Assistant, Stop, text_of
from hermes.testing.scripted_model import Pause, ScriptStep
from support.gateway import EchoModel, gateway_harness, wait_until


class HangingModel(EchoModel):
    """`first_delta` is set when the first piece of the answer was received."""

    def __init__(self) -> None:
        super().__init__([TextDelta("Half"), Pause.FOREVER])
        self.first_delta = anyio.Event()

    async def _play(self, steps: Sequence[ScriptStep]) -> AsyncGenerator[ModelChunk]:
        async for chunk in super()._play(steps):
            yield chunk
            self.first_delta.set()


async def test_partial_answer_is_not_delivered(tmp_path: Path) -> None:
    model = HangingModel()
    async with gateway_harness(tmp_path) as harness:
        harness.planner.model = model
        await harness.channel.say("hi")
        await wait_until(model.first_delta.is_set)
    async with gateway_harness(tmp_path) as harness:
        await wait_until(lambda: bool(harness.channel.texts_in("1")))
        await harness.wait_until_idle()
        (seen,) = harness.channel.texts_in("1")
        assert seen.startswith("re: ")
        answers = [
            message for message in await harness.transcript() if isinstance(message, Assistant)
        ]
        assert [(text_of(message), message.stop) for message in answers] == [
            ("Half", Stop.CANCELLED),
            (seen, Stop.END),
        ]
        assert await harness.open_rows() == []
