"""MCP server settings: validation and toolsets."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import convert, structs

from hermes.app.build import AppOptions, open_app
from hermes.app.toolbox import reserved_toolsets
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.mcp.server_config import HttpEndpoint, StdioEndpoint
from hermes.mcp.settings import ServerContext, server_config
from hermes.schema.errors import ConfigError, UsageError
from hermes.schema.scope import Role
from hermes.schema.tools import ToolSpec
from support.app_profile import ENV as MODEL
from support.app_profile import make_scope, open_profile
from support.cases import cases
from support.cli_process import TEST_TIMEOUT
from support.turns import FakeTool

ENV = Env({"PATH": "/bin", "HOME": "/home/ann", "SECRET_KEY": "x", "LC_ALL": "C", "LANG": "C"})
GROUND = ServerContext(ENV, Path("/hermes"), "/work", reserved_toolsets())


def made(**settings: object):
    return server_config("play", convert(settings, McpServer), GROUND)


def test_program_gets_base_environment_and_its_own_variables() -> None:
    way = made(command="~/bin/it", args=["-x", "~/y"], env={"A": "1"}, cwd="~/z").endpoint
    assert way == StdioEndpoint(
        argv=("/home/ann/bin/it", "-x", "/home/ann/y"),
        cwd="/home/ann/z",
        env={"PATH": "/bin", "HOME": "/home/ann", "LC_ALL": "C", "LANG": "C", "A": "1"},
    )


def test_unsandboxed_server_does_not_start_in_the_workspace_by_default() -> None:
    assert made(command="it").endpoint.cwd == "/hermes"
    assert made(command="it", sandbox=True).endpoint.cwd == "/work"
    assert made(command="it", cwd="sub").endpoint.cwd == "/work/sub"


def test_url_server_is_configured() -> None:
    server = made(url="https://a.example/mcp?key=x", transport="sse", headers={"A": "b"})
    assert server.endpoint == HttpEndpoint(
        url="https://a.example/mcp?key=x", headers={"A": "b"}, sse=True
    )
    assert server.address == "https://a.example/mcp"


@cases(
    ("settings", "why"),
    [
        ({}, "either a command to start or a url to call"),
        ({"command": "x", "url": "http://a"}, "either a command"),
        ({"url": "file:///etc/passwd"}, "must be http or https"),
        ({"url": "https://ann:pw@a.example"}, "without a password"),
        ({"url": "http://a.example", "transport": "pigeon"}, "unknown transport 'pigeon'"),
        ({"url": "http://a.example", "auth": "oauth"}, "put a token into its headers"),
        ({"url": "http://a.example", "headers": {"A": "b\nC: d"}}, "headers"),
        ({"url": "http://a.example", "headers": {"A": "${NOT_SET}"}}, "NOT_SET is not set"),
        ({"command": "x", "timeout": 0}, "more than 0"),
        ({"command": "x\0y"}, "cannot be run"),
    ],
)
def test_invalid_settings_are_reported(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        made(**settings)
    assert error.value.hint


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 33])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        server_config(name, McpServer(command="x"), GROUND)


def tools(*names: str) -> list[FakeTool]:
    found = []
    for name in names:
        server, _, _ = name.partition("_")
        tool = FakeTool(name)
        tool.spec = structs.replace(tool.spec, toolset=server)
        found.append(tool)
    return found


@pytest.mark.parametrize("name", ["memory", "file", "no_mcp", "hermes-cli"])
def test_server_called_like_a_toolset_has_a_toolset_of_its_own(name: str) -> None:
    server = server_config(name, McpServer(command="x"), GROUND)
    assert (server.name, server.toolset) == (name, f"mcp-{name}")


@pytest.mark.parametrize(
    ("settings", "own", "theirs"),
    [
        ("", True, True),
        ("agent: {disabled_toolsets: [memory]}", False, True),
        ("agent: {disabled_toolsets: [mcp-memory]}", True, False),
        ("toolsets: [memory]", True, True),
        ("toolsets: [file, mcp-memory]", False, True),
        ("toolsets: [memory, no_mcp]", True, False),
    ],
)
async def test_server_called_memory_and_our_memory(
    tmp_path: Path, settings: str, own: bool, theirs: bool
) -> None:
    servers = "mcp_servers: {memory: {command: x}}\n"
    async with open_profile(tmp_path, servers + settings) as app:
        tool = FakeTool("mcp__memory__recall")
        tool.spec = structs.replace(tool.spec, toolset="mcp-memory")
        app.toolbox.add_tools([tool], toolset="mcp-memory")
        offered = app.toolbox.tools_on("cli")
        assert ("memory" in offered, "mcp__memory__recall" in offered) == (own, theirs)
        assert app.warnings == []


SERVERS = "mcp_servers: {one: {command: x}, two: {command: x}}\n"


def theirs(specs: dict[str, object] | list[ToolSpec]) -> set[str]:
    return {name for name in specs if name[:3] in {"one", "two"}}


@pytest.mark.parametrize(
    ("settings", "on"),
    [
        ("", {"one_a", "two_b"}),
        ("platform_toolsets: {cli: [file, no_mcp]}", set()),
        ("platform_toolsets: {cli: []}", set()),
        ("platform_toolsets: {cli: [file, two]}", {"two_b"}),
        ("agent: {disabled_toolsets: [one]}", {"two_b"}),
        ("platform_toolsets: {cli: [one]}\nagent: {disabled_toolsets: [one]}", set()),
    ],
)
async def test_toolsets_select_servers(tmp_path: Path, settings: str, on: set[str]) -> None:
    async with open_profile(tmp_path, SERVERS + settings) as app:
        app.toolbox.add_tools(tools("one_a", "two_b"))
        assert theirs(app.toolbox.tools_on("cli")) == on
        assert app.warnings == []


async def test_toolsets_from_the_command_line_are_exclusive(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(SERVERS)
    choices = AppOptions(workspace=str(tmp_path), toolsets=("file", "two"))
    env = Env({**MODEL, "HOME": str(tmp_path)})
    async with open_app(Home(root=home, path=home), env, choices) as app:
        app.toolbox.add_tools(tools("one_a", "two_b"))
        assert theirs(app.tools) == {"two_b"}
        assert {"read_file", "terminal"} & {*app.tools} == {"read_file"}
        assert not app.toolbox.may_offer("one")


async def test_added_tools_replace_those_of_their_toolset(tmp_path: Path) -> None:
    async with open_profile(tmp_path, SERVERS) as app:
        app.toolbox.add_tools(tools("one_a", "two_b", "read_file"))
        app.toolbox.add_tools(tools("one_c"), toolset="one")
        assert theirs(app.toolbox.tools_on("cli")) == {"one_c", "two_b"}
        assert app.toolbox.toolsets()["one"] == ["one_c"]
        app.toolbox.add_tools([], toolset="one")
        assert theirs(app.toolbox.tools_on("cli")) == {"two_b"}
        assert app.tools["read_file"].spec.toolset == "file"


async def test_first_tool_of_a_name_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_profile(tmp_path, SERVERS) as app:
        first, second = FakeTool("one_a"), FakeTool("one_a")
        first.spec = structs.replace(first.spec, toolset="one")
        second.spec = structs.replace(second.spec, toolset="two")
        for _ in range(2):
            app.toolbox.add_tools([first], toolset="one")
            app.toolbox.add_tools([second], toolset="two")
            assert app.toolbox.tools_on("cli")["one_a"] is first
        assert "two and one both have a tool one_a" in caplog.text
        app.toolbox.add_tools([first, second], toolset="one")
        assert app.toolbox.tools_on("cli")["one_a"] is first


async def test_roles_can_name_a_server(tmp_path: Path) -> None:
    roles = "platforms: {cli: {extra: {roles: {guest: {toolsets: [two]}}}}}"
    async with open_profile(tmp_path, SERVERS + roles) as app:
        app.toolbox.add_tools(tools("one_a", "two_b"))
        assert theirs(app.planner.offered(make_scope(tmp_path, role=Role.GUEST))) == {"two_b"}
        assert theirs(app.planner.offered(make_scope(tmp_path))) == {"one_a", "two_b"}
        with pytest.raises(UsageError):
            app.toolbox.tools_named(["nonsense"])


async def test_removed_server_is_no_longer_a_toolset(tmp_path: Path) -> None:
    async with open_profile(tmp_path, SERVERS) as app:
        app.toolbox.add_tools(tools("one_a", "two_b"))
        app.toolbox.remove_toolset("one")
        app.toolbox.remove_toolset("nobody")
        assert theirs(app.toolbox.tools_on("cli")) == {"two_b"}
        assert "one" not in app.toolbox.toolsets()


async def test_reloaded_settings_change_toolsets(tmp_path: Path) -> None:
    async with open_profile(tmp_path, f"{SERVERS}agent: {{disabled_toolsets: [one, todo]}}") as app:
        box = app.toolbox
        box.add_tools(tools("one_a", "two_b"))
        assert (theirs(box.tools_on("cli")), "todo" in box.tools_on("cli")) == ({"two_b"}, False)
        box.update_settings(Config(mcp_servers={"one": McpServer(command="x")}))
        assert box.may_offer("one")
        assert (theirs(box.tools_on("cli")), "todo" in box.tools_on("cli")) == (
            {"one_a", "two_b"},
            True,
        )
        box.update_settings(Config(platform_toolsets={"cli": ("file", "one")}))
        assert (theirs(box.tools_on("cli")), "todo" in box.tools_on("cli")) == ({"one_a"}, False)


@pytest.mark.slow
def test_package_that_fails_to_load_is_reported(tmp_path: Path) -> None:
    """Whatever it raises, a profile goes on."""
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp/__init__.py").write_text("raise RuntimeError('made for another Python')")
    code = "from hermes.mcp.servers import load_sdk; print(load_sdk())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=TEST_TIMEOUT,
    )
    assert ran.stdout.startswith("Cannot load the MCP package")
    assert "made for another Python" in ran.stdout
