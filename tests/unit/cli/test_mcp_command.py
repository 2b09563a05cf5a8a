"""`hermes mcp`: servers are added, listed, removed and checked."""

import io
import json
from pathlib import Path

import pytest

from hermes.cli.arguments import build_parser
from hermes.cli.context import CliContext
from hermes.cli.verbs import mcp, tools
from hermes.cli.verbs.doctor.execution import check_servers
from hermes.cli.verbs.doctor.finding import CheckContext, Grade
from hermes.config.env import Env, profile_env
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.schema.errors import HermesError, NotFound, UsageError


class McpCli:
    def __init__(self, root: Path) -> None:
        self.env = Env({"HERMES_HOME": str(root / "home"), "HOME": str(root), "PATH": "/bin"})
        self.errors = io.StringIO()
        self.context = CliContext(self.env, None, (io.StringIO(), io.StringIO(), self.errors))

    def __call__(self, *words: str) -> str:
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, self.errors))
        assert mcp.run(build_parser("mcp").parse_args(words), context) == 0
        return out.getvalue()

    def tools(self, *words: str) -> str:
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, self.errors))
        assert tools.run(build_parser("tools").parse_args(words), context) == 0
        return out.getvalue()

    def listed(self) -> dict[str, dict[str, str]]:
        return {one["name"]: one for one in json.loads(self("list", "--json"))}

    @property
    def config(self):
        home = self.context.home()
        return load_config(home, profile_env(home.dotenv, self.env)).config

    async def checked(self) -> list[tuple[Grade, str]]:
        home = self.context.home()
        patient = CheckContext(home=home, env=self.env, config=self.config, clock=SystemClock())
        return [(one.grade, one.says) for one in await check_servers(patient)]


@pytest.fixture
def cli(tmp_path: Path) -> McpCli:
    return McpCli(tmp_path)


def test_relative_file_is_found_from_any_folder(
    cli: McpCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").touch()
    monkeypatch.chdir(tmp_path)
    cli("add", "near", "--command", "python3", "--args", "-u", "server.py")
    cli("add", "far", "--command", "python3", "--args", "-m", "nowhere.py", "/bin/sh")
    servers = cli.config.mcp_servers
    assert (servers["near"].cwd, servers["far"].cwd) == (str(tmp_path), "")


async def test_relative_program_is_looked_up_in_its_folder(
    cli: McpCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "serve").touch(mode=0o700)
    monkeypatch.chdir(tmp_path)
    cli("add", "near", "--command", "bin/serve")
    monkeypatch.chdir("/")
    assert [grade for grade, _ in await cli.checked()] == [Grade.OK]
    assert "warning" not in cli.errors.getvalue()
    (tmp_path / "bin" / "serve").unlink()
    ((grade, says),) = await cli.checked()
    assert (grade, says) == (Grade.WARNING, f"near: {tmp_path}/bin/serve is not installed.")


def test_missing_program_is_mentioned_when_a_server_is_added(cli: McpCli) -> None:
    cli("add", "one", "--command", "/nowhere/serve")
    assert "warning: /nowhere/serve is not installed.\n" in cli.errors.getvalue()


def test_servers_are_added_and_removed(cli: McpCli) -> None:
    assert "No MCP servers" in cli("list")
    cli("add", "one", "--env", "A=b=c", "--command", "sh", "--args", "-c", "exit")
    cli("add", "two", "--url", "https://a.example/mcp", "--header", "Authorization=Bearer ${TOK}")
    assert "hermes mcp test two" in cli.errors.getvalue()
    one, two = cli.config.mcp_servers["one"], cli.config.mcp_servers["two"]
    assert (one.command, one.args, one.env) == ("sh", ("-c", "exit"), {"A": "b=c"})
    assert (two.url, two.headers) == (
        "https://a.example/mcp",
        {"Authorization": "Bearer ${TOK}"},
    )
    assert cli.listed()["one"] == {
        "name": "one", "state": "on", "where": "sh -c exit", "trouble": "",
    }  # fmt: skip
    assert "TOK is not set" in cli.listed()["two"]["trouble"]
    assert "sh -c exit" in cli("list")
    cli("remove", "two")
    assert list(cli.config.mcp_servers) == ["one"]


def test_unset_variables_are_accepted_and_stored_by_name(cli: McpCli) -> None:
    """The file stores references, which are expanded when it is read."""
    cli.env = Env({**cli.env, "ROOT": "/srv"})
    cli("add", "one", "--command", "${ROOT}/bin/serve", "--args", "${DATA}/x", "--${FLAG}")
    cli("add", "two", "--url", "https://${SITE}/mcp")
    cli("add", "three", "--url", "${ADDRESS}")
    assert "DATA is not set" in cli.errors.getvalue()
    assert "${ROOT}/bin/serve" in cli.context.home().config.read_text()
    one, two, three = cli.config.mcp_servers.values()
    assert (one.command, one.args) == ("/srv/bin/serve", ("${DATA}/x", "--${FLAG}"))
    assert (two.url, three.url) == ("https://${SITE}/mcp", "${ADDRESS}")
    assert "DATA is not set" in cli.listed()["one"]["trouble"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["add", "x"], UsageError),
        (["add", "x", "--url", "nowhere"], UsageError),
        (["add", "x", "--env", "A", "--command", "sh"], UsageError),
        (["add", "one", "--command", "other"], UsageError),
        (["remove", "two"], NotFound),
        (["test", "two"], NotFound),
    ],
)
def test_invalid_server_is_rejected(
    cli: McpCli, words: list[str], error: type[HermesError]
) -> None:
    cli("add", "one", "--command", "sh")
    before = cli.config.mcp_servers
    with pytest.raises(error) as caught:
        cli(*words)
    assert caught.value.hint or words[3:4] == ["A"]
    assert cli.config.mcp_servers == before


def test_mcp_toolset_can_be_turned_on_and_off(cli: McpCli) -> None:
    cli("add", "one", "--command", "sh")
    cli("add", "two", "--command", "sh")

    def on(platform: str = "cli") -> set[str]:
        rows = json.loads(cli.tools("list", "--json", "--platform", platform))
        return {row["name"] for row in rows if row["on"][platform]} & {"one", "two"}

    assert on() == {"one", "two"}
    cli.tools("disable", "one", "--platform", "cli")
    assert (on(), on("api_server")) == ({"two"}, {"two"})
    cli.tools("disable", "two", "--platform", "cli")
    assert on() == set()
    cli.tools("enable", "one", "--platform", "cli")
    assert on() == {"one"}
    cli.tools("disable", "one")
    assert (on(), cli.listed()["one"]["state"]) == (set(), "off")
    cli.tools("enable", "one", "two")
    assert on() == {"one", "two"}


def test_secrets_are_masked_in_the_list(cli: McpCli) -> None:
    cli.env = Env({**cli.env, "PIN": "abc"})
    home = cli.context.home()
    home.path.mkdir()
    args = '[-x, "${PIN}", --token, t1, y]'
    home.config.write_text(f"mcp_servers: {{one: {{command: sh, args: {args}}}}}\n")
    cli("add", "two", "--command", "sh", "--args", "--api-key=k9", "A_SECRET=s3", "z")
    assert cli.listed()["one"]["where"] == "sh -x ${PIN} --token [redacted] y"
    assert cli.listed()["two"]["where"] == "sh --api-key=[redacted] A_SECRET=[redacted] z"


async def test_servers_with_colliding_tool_names_are_reported(cli: McpCli) -> None:
    cli("add", "a.b", "--command", "sh")
    with pytest.raises(UsageError, match=r"its name is too similar to that of 'a\.b'"):
        cli("add", "a_b", "--command", "sh")
    with pytest.raises(UsageError, match="no two dots or underscores in a row"):
        cli("add", "a__b", "--command", "sh")
    config = cli.context.home().config
    config.write_text("mcp_servers: {a.b: {command: sh}, a_b: {command: sh}}\n")
    [(grade, says)] = await cli.checked()
    assert (grade, "to that of 'a.b'" in says) == (Grade.ERROR, True)
    assert "a.b" in cli.listed()["a_b"]["trouble"]


async def test_doctor_checks_mcp_servers(cli: McpCli) -> None:
    assert await cli.checked() == []
    cli("add", "one", "--command", "sh")
    assert [grade for grade, _ in await cli.checked()] == [Grade.OK]
    cli("add", "two", "--command", "no-such-program")
    cli("add", "three", "--url", "http://a.example", "--header", "A=${UNSET}")
    found = await cli.checked()
    assert [grade for grade, _ in found] == [Grade.WARNING, Grade.ERROR]
    assert "no-such-program is not installed" in found[0][1]
