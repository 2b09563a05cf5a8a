from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hermes.models.resilient_model import KeyedModel, ResilientModel, RetryPolicy
from hermes.ports.model import Model, ModelRequest
from hermes.schema.errors import ModelError, Unreachable
from hermes.schema.messages import Text, User
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import (
    ModelContract,
    ScriptedAnswer,
    read_stream,
    scripted_deltas,
    scripted_message,
)
from hermes.testing.scripted_model import Pause, ScriptedModel, ScriptStep, answer_script


def script(played: ScriptedAnswer) -> list[ScriptStep]:
    if played.error:
        return [played.error("as scripted")]
    deltas = list(scripted_deltas(played))
    if played.breaks:
        return [*deltas, Unreachable("as scripted")]
    return [*deltas, Pause.FOREVER if played.hangs else scripted_message(played)]


class ScriptedRig:
    @asynccontextmanager
    async def playing(self, *answers: ScriptedAnswer) -> AsyncIterator[Model]:
        self.model = ScriptedModel(*map(script, answers))
        yield self.model

    async def saw_disconnect(self) -> bool:
        return self.model.abandoned_streams == 1


class TestScriptedModel(ModelContract):
    @pytest.fixture
    def rig(self) -> ScriptedRig:
        return ScriptedRig()


class ResilientRig(ScriptedRig):
    """A chain of one model with one try behaves like the model itself."""

    @asynccontextmanager
    async def playing(self, *answers: ScriptedAnswer) -> AsyncIterator[Model]:
        async with super().playing(*answers):
            yield ResilientModel([KeyedModel(self.model)], FakeClock(), RetryPolicy(tries=1))


class TestResilientModel(ModelContract):
    @pytest.fixture
    def rig(self) -> ResilientRig:
        return ResilientRig()


async def test_scripted_model_records_requests_and_fails_when_out_of_scripts():
    model = ScriptedModel(
        lambda request: answer_script(*(part.text for part in request.messages[0].parts))
    )
    request = ModelRequest("", [User("u", (Text("echo"),))])
    assert (await read_stream(model, request)).text == "echo"
    with pytest.raises(ModelError, match="no script left for request 2"):
        await read_stream(model, request)
    assert model.requests == [request, request]
