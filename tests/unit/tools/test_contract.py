"""Every first tool keeps the contract; together they are cheap to tell the model about."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from msgspec import structs

from background import registry_of
from hermes.ports.tool import Tool
from hermes.store.sqlite import open_store
from hermes.testing.contracts.tool import ToolContract
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.toolsets import TOOLSETS

MAX_WIRE = 7_000


class TestTerminal(ToolContract):
    busy: ClassVar = {"command": "echo begun; sleep 1000"}

    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["terminal"]


class TestReadFile(ToolContract):
    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["read_file"]


class TestWriteFile(ToolContract):
    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["write_file"]


class TestPatch(ToolContract):
    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["patch"]


class TestSearchFiles(ToolContract):
    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["search_files"]


class TestTodo(ToolContract):
    @pytest.fixture
    def tool(self, tools: dict[str, Tool]) -> Tool:
        return tools["todo"]


@pytest.fixture
async def all_tools(deps: ToolDeps, tmp_path: Path) -> AsyncIterator[dict[str, Tool]]:
    """With those that need a registry of processes."""
    async with (
        open_store(tmp_path / "state.db", deps.clock) as store,
        registry_of(store, deps.clock, tmp_path) as registry,
    ):
        yield first_tools(structs.replace(deps, processes=registry))


@pytest.mark.anyio
async def test_all_tools_together_are_small(all_tools: dict[str, Tool]):
    wire = [
        {
            "type": "function",
            "function": {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": tool.spec.schema,
            },
        }
        for tool in all_tools.values()
    ]
    assert len(msgspec.json.encode(wire)) <= MAX_WIRE


@pytest.mark.anyio
async def test_every_tool_is_in_the_toolset_it_names(all_tools: dict[str, Tool]):
    listed = {name: toolset for toolset, names in TOOLSETS.items() for name in names}
    assert listed == {tool.spec.name: tool.spec.toolset for tool in all_tools.values()}
