"""The stored specs match the tools, and tools are imported at their first call."""

from pathlib import Path

from msgspec import Raw

from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.scope import Scope
from hermes.testing.tools import all_tools
from hermes.tools.catalog import OPTIONAL, SPECS_FILE, LazyTool, encode_specs, load_specs
from support.turns import FakeTool, assistant_message, tool_call, tool_result, user_message


def test_stored_specs_match_the_tools(tmp_path: Path) -> None:
    text = encode_specs(all_tools(tmp_path))
    assert SPECS_FILE.read_bytes() == text, "make specs writes it anew"


async def test_tool_is_created_once_at_the_first_call(tmp_path: Path) -> None:
    made: list[FakeTool] = []

    def make() -> FakeTool:
        made.append(FakeTool("look"))
        return made[-1]

    async def progress(text: str) -> None:
        raise AssertionError(text)

    lazy = LazyTool(FakeTool("look").spec, make)
    assert made == []
    for _ in range(2):
        ctx = ToolContext(Scope("p", "s", "r", str(tmp_path)), "c", progress)
        assert isinstance(await lazy.run(Raw(b"{}"), ctx), ToolOutput)
    assert len(made) == 1


def test_tool_is_restored_only_if_it_was_used() -> None:
    sessions: list[str] = []

    class Remembers(FakeTool):
        def restore(self, session: str, messages: object) -> None:
            sessions.append(session)

    tool = Remembers("look")
    lazy = LazyTool(tool.spec, lambda: tool)
    call = tool_call("look", "c1")
    other = tool_call("other", "c2")
    lazy.restore("never", [user_message(), assistant_message(other), tool_result("c2")])
    assert sessions == []
    lazy.restore("once", [user_message(), assistant_message(call), tool_result("c1")])
    lazy.restore("never", [])
    assert sessions == ["once", "never"]


def test_specs_are_small() -> None:
    specs = [spec for spec in load_specs().values() if spec.toolset not in OPTIONAL]
    size = sum(len(spec.description) + len(str(spec.schema)) for spec in specs)
    assert size < 14_000
