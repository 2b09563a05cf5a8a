from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hermes.models.resilient import Policy, Resilient, Route
from hermes.ports.model import Model, Request
from hermes.schema.errors import ModelError, Unreachable
from hermes.schema.messages import Text, User
from hermes.testing.clock import FakeClock
from hermes.testing.contracts.model import (
    ModelContract,
    Played,
    answer_of,
    listen,
    pieces_of,
)
from hermes.testing.scripted import Pause, ScriptedModel, Step, says


def script(played: Played) -> list[Step]:
    if played.error:
        return [played.error("as scripted")]
    deltas = list(pieces_of(played))
    if played.breaks:
        return [*deltas, Unreachable("as scripted")]
    return [*deltas, Pause.FOREVER if played.hangs else answer_of(played)]


class ScriptedRig:
    @asynccontextmanager
    async def playing(self, *answers: Played) -> AsyncIterator[Model]:
        self.model = ScriptedModel(*map(script, answers))
        yield self.model

    async def saw_us_leave(self) -> bool:
        return self.model.left_early == 1


class TestScriptedModel(ModelContract):
    @pytest.fixture
    def rig(self) -> ScriptedRig:
        return ScriptedRig()


class ResilientRig(ScriptedRig):
    """A chain of one that tries once must be as good as the one."""

    @asynccontextmanager
    async def playing(self, *answers: Played) -> AsyncIterator[Model]:
        async with super().playing(*answers):
            yield Resilient([Route(self.model)], FakeClock(), Policy(tries=1))


class TestResilientModel(ModelContract):
    @pytest.fixture
    def rig(self) -> ResilientRig:
        return ResilientRig()


@pytest.mark.anyio
async def test_it_remembers_requests_and_complains_when_its_scripts_run_out():
    model = ScriptedModel(lambda request: says(*(part.text for part in request.messages[0].parts)))
    request = Request("", [User("u", (Text("echo"),))])
    assert (await listen(model, request)).text == "echo"
    with pytest.raises(ModelError, match="no script left for request 2"):
        await listen(model, request)
    assert model.requests == [request, request]
