"""Contract of tools: subclass `ToolContract` and provide the fixtures `tool` and `scope`.

For tools that can run long, `busy` holds the arguments of a call that reports progress and then
runs until it is cancelled.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.scope import Scope
from hermes.schema.tools import ToolSpec

TEST_TIMEOUT = 60.0
MAX_BYTES = 2_000
KEYWORDS = {
    "type", "properties", "required", "items", "enum", "description", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems", "pattern", "anyOf", "additionalProperties",
}  # fmt: skip
TYPES = {"object", "array", "string", "integer", "number", "boolean", "null"}
WRONG_VALUES: dict[str, object] = {
    "string": {"an": "object"},
    "integer": "many",
    "number": "many",
    "boolean": "perhaps",
    "array": "a word",
    "object": 7,
}

_WORDS: st.SearchStrategy[str] = st.sampled_from(
    ("", " ", "true", "no/such/thing", "~", "\0", "ä\u2028b", "-1", "x" * 300)
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)


class ToolContract:
    pytestmark: ClassVar = pytest.mark.anyio
    busy: ClassVar[dict[str, Any] | None] = None

    def test_spec_is_complete(self, tool: Tool) -> None:
        spec = tool.spec
        assert re.fullmatch(r"[a-z][a-z0-9_]{0,63}", spec.name)
        assert spec.description.strip() == spec.description != ""
        assert spec.timeout > 0
        assert spec.toolset

    def test_schema_is_plain_and_small(self, tool: Tool) -> None:
        spec = tool.spec
        encoded = msgspec.json.encode(spec.schema)
        assert msgspec.json.decode(encoded) == spec.schema
        assert len(encoded) + len(spec.description.encode()) <= MAX_BYTES
        assert spec.schema["type"] == "object"
        for node in _nodes(spec.schema):
            assert set(node) <= KEYWORDS
            assert "anyOf" in node or "enum" in node or node["type"] in TYPES
            assert set(node.get("required", ())) <= set(node.get("properties", ()))

    async def test_wrong_type_error_names_the_parameter(self, tool: Tool, scope: Scope) -> None:
        for name, node in tool.spec.schema["properties"].items():
            wrong = ["no such choice"] if "enum" in node else WRONG_VALUES[node["type"]]
            with pytest.raises(ToolError, match=re.escape(name)):
                await _call(tool, scope, {**_minimal_arguments(tool.spec), name: wrong})

    async def test_missing_parameter_error_names_the_parameter(
        self, tool: Tool, scope: Scope
    ) -> None:
        for name in tool.spec.schema.get("required", ()):
            given_args = {k: v for k, v in _minimal_arguments(tool.spec).items() if k != name}
            with pytest.raises(ToolError, match=re.escape(name)):
                await _call(tool, scope, given_args)

    async def test_unknown_parameter_is_rejected(self, tool: Tool, scope: Scope) -> None:
        with pytest.raises(ToolError, match="no_such_parameter"):
            await _call(tool, scope, {**_minimal_arguments(tool.spec), "no_such_parameter": 1})

    @pytest.mark.parametrize(
        "raw", [b"", b"[]", b"7", b"null", b'"x"', b"{", b'{"a":1}}', b"[" * 100_000, b"\xff"]
    )
    async def test_arguments_other_than_an_object_are_rejected(
        self, tool: Tool, scope: Scope, raw: bytes
    ) -> None:
        with pytest.raises(ToolError):
            await tool.run(Raw(raw), _context(scope))

    @settings(
        max_examples=min(40, settings().max_examples),
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(data=st.data())
    async def test_any_arguments_give_output_or_a_tool_error(
        self, tool: Tool, scope: Scope, data: st.DataObject
    ) -> None:
        names: list[str] = sorted(tool.spec.schema["properties"])
        known = st.sampled_from(names) | _WORDS
        args: dict[str, Any] = data.draw(st.dictionaries(known, _VALUES, max_size=5))
        with suppress(ToolError):
            assert (await _call(tool, scope, args)).parts

    async def test_cancelled_call_ends(self, tool: Tool, scope: Scope) -> None:
        """A tool without `busy` arguments must return soon by itself."""
        busy = self.busy
        if busy is None:
            with anyio.fail_after(TEST_TIMEOUT), suppress(ToolError):
                await _call(tool, scope, _minimal_arguments(tool.spec))
            return
        started = anyio.Event()

        async def progress(_: str) -> None:
            started.set()

        finished = False

        async def run() -> None:
            nonlocal finished
            await tool.run(Raw(msgspec.json.encode(busy)), ToolContext(scope, "call", progress))
            finished = True

        with anyio.fail_after(TEST_TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(run)
                await started.wait()
                group.cancel_scope.cancel()
        assert not finished


async def _call(tool: Tool, scope: Scope, args: dict[str, Any]) -> ToolOutput:
    return await tool.run(Raw(msgspec.json.encode(args)), _context(scope))


def _context(scope: Scope) -> ToolContext:
    async def progress(_: str) -> None:
        await anyio.lowlevel.checkpoint()

    return ToolContext(scope, "call", progress)


def _minimal_arguments(spec: ToolSpec) -> dict[str, Any]:
    """Return required arguments of the right types; the values are arbitrary."""
    samples: dict[str, object] = {"string": "x", "integer": 1, "boolean": False, "array": []}
    properties: dict[str, dict[str, Any]] = spec.schema["properties"]
    return {name: samples[properties[name]["type"]] for name in spec.schema.get("required", ())}


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for part in schema.get("properties", {}).values():
        yield from _nodes(part)
    if "items" in schema:
        yield from _nodes(schema["items"])
