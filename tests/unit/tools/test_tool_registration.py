"""Adding a tool takes its module, its description and one registration."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.app.toolbox import Toolbox, ToolSelection
from hermes.config.schema import Config
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec
from hermes.testing.clock import FakeClock
from hermes.testing.tools import all_tools
from hermes.tools.catalog import (
    BUILT_IN,
    Registration,
    build_tools,
    encode_specs,
    load_specs,
)
from hermes.tools.collaborators import ToolCollaborators
from support.slash_commands import FakeCheckpoints

MODULE = """
from msgspec import Struct

from hermes.ports.tool import ToolOutput
from hermes.schema.tools import Effect
from hermes.tools.tool_io import Arguments


class WeatherArgs(Struct, frozen=True, forbid_unknown_fields=True):
    city: str


class Weather:
    def __init__(self, redact):
        self._redact = redact
        self._arguments = Arguments("weather", WeatherArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.READ, timeout=20.0, toolset="weather", foreign=True, changes_files=True
        )

    async def run(self, args, ctx):
        return ToolOutput.text(self._redact(f"Sun in {self._arguments.decode(args).city}"))


def build_weather(given):
    return Weather(given.redact)
"""
REGISTERED = (*BUILT_IN, Registration("weather", "weather_for_tests:build_weather"))


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, ToolSpec]:
    """The specs as `make specs` writes them for a folder with one more tool."""
    (tmp_path / "weather_for_tests.py").write_text(MODULE)
    (tmp_path / "weather.md").write_text("Tell the weather of a city.\n")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("weather_for_tests", None)  # of an earlier test, from its own folder
    text = encode_specs(all_tools(tmp_path, REGISTERED))
    del sys.modules["weather_for_tests"]
    return msgspec.json.decode(text, type=dict[str, ToolSpec])


def names(registered: Sequence[Registration]) -> list[str]:
    return [one.name for one in registered]


async def test_registered_tool_is_listed_and_runs(
    specs: Mapping[str, ToolSpec], deps: ToolCollaborators, scope: Scope, secret: str
) -> None:
    checkpoints = FakeCheckpoints(FakeClock())
    complete = structs.replace(deps, checkpoints=checkpoints)
    tools = build_tools(complete, REGISTERED, specs)
    assert [*tools][-1] == "weather"
    spec = tools["weather"].spec
    assert (spec.description, spec.toolset) == ("Tell the weather of a city.", "weather")
    assert spec.foreign
    assert "weather_for_tests" not in sys.modules

    async def progress(text: str) -> None:
        raise AssertionError(text)

    args = Raw(msgspec.json.encode({"city": secret}))
    output = await tools["weather"].run(args, ToolContext(scope, "c", progress))
    assert output.parts == (Text("Sun in [redacted]"),)
    assert len(checkpoints.saved) == 1


def test_platforms_get_the_registered_tool(
    specs: Mapping[str, ToolSpec], deps: ToolCollaborators
) -> None:
    toolbox = Toolbox(
        lambda platform: deps,
        Config(),
        ToolSelection(),
        registered=REGISTERED,
        specs=specs,
    )
    assert "weather" in toolbox.tools_on("cli")
    assert "weather" in toolbox.tools_on("telegram")
    assert toolbox.toolsets()["weather"] == ["weather"]
    assert {"weather", "terminal"} <= {*toolbox.tools_named(["hermes-cli"])}


def test_specs_are_stored_in_the_order_of_registration() -> None:
    assert [*load_specs()] == names(BUILT_IN)


def test_facts_about_built_in_tools_are_in_their_specs() -> None:
    specs = load_specs()
    own = {name for name, spec in specs.items() if spec.own}
    assert own == {"memory", "skills_list", "skill_view", "skill_manage", "todo", "clarify"}
    assert {name for name, spec in specs.items() if spec.stateful} == {"todo", "terminal"}
    changing = {name for name, spec in specs.items() if spec.changes_files}
    assert changing == {"terminal", "write_file", "patch", "execute_code"}


def test_tool_without_its_collaborator_is_not_offered(deps: ToolCollaborators) -> None:
    missing = {one.name for one in BUILT_IN if one.needs}
    assert {*build_tools(deps)} == {*names(BUILT_IN)} - missing
