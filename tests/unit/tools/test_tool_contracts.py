"""Every built-in tool meets the contract, and their specs are small."""

from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from hermes.ports.tool import Tool
from hermes.testing.contracts.tool import ToolContract
from hermes.testing.tools import all_tools
from hermes.tools.catalog import OPTIONAL, built_in_toolsets

MAX_WIRE = 13_200


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


def test_all_specs_together_are_small(tmp_path: Path):
    wire = [
        {
            "type": "function",
            "function": {
                "name": tool.spec.name,
                "description": tool.spec.description,
                "parameters": tool.spec.schema,
            },
        }
        for tool in all_tools(tmp_path).values()
        if tool.spec.toolset not in OPTIONAL
    ]
    assert len(msgspec.json.encode(wire)) <= MAX_WIRE


def test_every_tool_is_in_its_toolset(tmp_path: Path):
    listed = {
        name: toolset for toolset, names in built_in_toolsets().single.items() for name in names
    }
    assert listed == {tool.spec.name: tool.spec.toolset for tool in all_tools(tmp_path).values()}
