"""Which tools of servers a platform gets, and what `--toolsets` chooses."""

from collections.abc import Sequence

import pytest
from msgspec import Raw, Struct
from msgspec.structs import replace

from hermes.app.toolbox import Toolbox, ToolSelection, tool_selection
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import UsageError
from hermes.schema.tools import ToolSpec
from hermes.tools.catalog import tools_of
from hermes.tools.collaborators import ToolCollaborators

SERVERS = {name: McpServer(command="server") for name in ("file", "wiki", "notes")}
CONFIG = Config(mcp_servers=SERVERS)


class ServerTool(Struct, frozen=True):
    """A tool that is only offered, never called."""

    spec: ToolSpec

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        raise NotImplementedError


def tool(name: str, toolset: str) -> ServerTool:
    return ServerTool(ToolSpec(name, "Looks something up.", {}, toolset=toolset))


def no_collaborators(platform: str) -> ToolCollaborators:
    raise NotImplementedError


def toolbox(
    *toolsets: str, config: Config = CONFIG, wanted: Sequence[str] | None = None
) -> Toolbox:
    selection = tool_selection(config, wanted, ())
    one = Toolbox(no_collaborators, config, selection, registered=())
    for toolset in toolsets:
        one.add_tools([tool("look_up", toolset), tool(f"{toolset}_only", toolset)])
    return one


def test_server_named_like_a_toolset_is_chosen_by_its_own_name() -> None:
    chosen = tool_selection(CONFIG, ["file"], ())
    assert (chosen.tools, chosen.servers) == (tools_of(["file"]), frozenset())
    one = toolbox("mcp-file", "wiki", wanted=["mcp-file"])
    assert {*one.tools_on("cli")} == {"look_up", "mcp-file_only"}


@pytest.mark.parametrize("name", ["*", "hermes-telegram", "hermes-cli"])
def test_names_of_the_full_set_are_known(name: str) -> None:
    chosen = tool_selection(CONFIG, [name, "wiki", "no_mcp"], [name])
    assert chosen == ToolSelection(
        disabled=frozenset({"hermes-cli"}),
        tools=tools_of(["hermes-cli"]),
        servers=frozenset({"wiki"}),
    )


def test_built_in_name_keeps_its_meaning() -> None:
    assert tool_selection(CONFIG, ["all"], ()).tools == tools_of(["all"])


def test_unknown_toolset_is_refused() -> None:
    with pytest.raises(UsageError, match="Unknown toolset: 'mcp-wiki'"):
        tool_selection(CONFIG, ["mcp-wiki"], ())


def test_tool_of_the_first_server_is_used_in_any_order_of_connection() -> None:
    for order in (("wiki", "notes"), ("notes", "wiki")):
        found = toolbox(*order).tools_on("cli")
        assert found["look_up"].spec.toolset == "wiki"
        assert {*found} == {"look_up", "wiki_only", "notes_only"}


def test_tool_of_another_server_is_used_where_the_first_is_not_enabled_or_gone() -> None:
    config = replace(CONFIG, platform_toolsets={"telegram": ["hermes-cli", "notes"]})
    one = toolbox("wiki", "notes", config=config)
    assert one.tools_on("telegram")["look_up"].spec.toolset == "notes"
    assert one.tools_on("cli")["look_up"].spec.toolset == "wiki"
    one.remove_toolset("wiki")
    assert one.tools_on("cli")["look_up"].spec.toolset == "notes"


def test_tools_with_one_name_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    one = toolbox("wiki", "notes")
    assert "notes and wiki both have a tool look_up" in caplog.text
    one.add_tools([tool("terminal", "wiki")])
    assert "skipped terminal of wiki" in caplog.text
