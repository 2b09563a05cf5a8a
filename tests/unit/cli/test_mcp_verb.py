"""`hermes mcp`: servers come into the settings and go, and what is wrong is said at once."""

import io
import json
from pathlib import Path

import pytest

from hermes.cli.context import CliContext
from hermes.cli.parser import Parser
from hermes.cli.verbs import mcp, tools
from hermes.cli.verbs.doctor.extensions import check_servers
from hermes.cli.verbs.doctor.finding import CheckContext, Grade
from hermes.cli.verbs.mcp.actions import perform
from hermes.cli.verbs.tools.actions import perform as perform_tools
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.schema.errors import HermesError, NotFound, UsageError


class Desk:
    def __init__(self, root: Path) -> None:
        self.env = Env({"HERMES_HOME": str(root / "home"), "HOME": str(root), "PATH": "/bin"})
        self.errors = io.StringIO()
        self.context = CliContext(self.env, None, (io.StringIO(), io.StringIO(), self.errors))

    def __call__(self, *words: str) -> str:
        parser = Parser(prog="hermes mcp")
        mcp.add_arguments(parser)
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, self.errors))
        assert perform(parser.parse_args(words), context) == 0
        return out.getvalue()

    def tools(self, *words: str) -> str:
        parser = Parser(prog="hermes tools")
        tools.add_arguments(parser)
        out = io.StringIO()
        context = CliContext(self.env, None, (io.StringIO(), out, self.errors))
        assert perform_tools(parser.parse_args(words), context) == 0
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
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_file_is_found_from_wherever_it_is_started(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.py").touch()
    monkeypatch.chdir(tmp_path)
    desk("add", "near", "--command", "python3", "--args", "-u", "server.py")
    desk("add", "far", "--command", "python3", "--args", "-m", "nowhere.py", "/bin/sh")
    servers = desk.config.mcp_servers
    assert (servers["near"].cwd, servers["far"].cwd) == (str(tmp_path), "")


@pytest.mark.anyio
async def test_a_program_is_looked_for_where_it_is_started(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "serve").touch(mode=0o700)
    monkeypatch.chdir(tmp_path)
    desk("add", "near", "--command", "bin/serve")
    monkeypatch.chdir("/")
    assert [grade for grade, _ in await desk.checked()] == [Grade.OK]
    (tmp_path / "bin" / "serve").unlink()
    ((grade, says),) = await desk.checked()
    assert (grade, says) == (Grade.WARNING, f"near: {tmp_path}/bin/serve is not installed.")


def test_servers_come_and_go(desk: Desk) -> None:
    assert "no MCP servers" in desk("list")
    desk("add", "one", "--env", "A=b=c", "--command", "sh", "--args", "-c", "exit")
    desk("add", "two", "--url", "https://a.example/mcp", "--header", "Authorization=Bearer ${TOK}")
    assert "hermes mcp test two" in desk.errors.getvalue()
    one, two = desk.config.mcp_servers["one"], desk.config.mcp_servers["two"]
    assert (one.command, one.args, one.env) == ("sh", ("-c", "exit"), {"A": "b=c"})
    assert (two.url, two.headers) == (
        "https://a.example/mcp",
        {"Authorization": "Bearer ${TOK}"},
    )
    assert desk.listed()["one"] == {
        "name": "one", "state": "on", "where": "sh -c exit", "trouble": "",
    }  # fmt: skip
    assert "TOK is not set" in desk.listed()["two"]["trouble"]
    assert "sh -c exit" in desk("list")
    desk("remove", "two")
    assert list(desk.config.mcp_servers) == ["one"]


def test_variables_are_for_later_wherever_they_stand(desk: Desk) -> None:
    """Set or not: the file has them by their names, and who reads it finds what they are then."""
    desk.env = Env({**desk.env, "ROOT": "/srv"})
    desk("add", "one", "--command", "${ROOT}/bin/serve", "--args", "${DATA}/x", "--${FLAG}")
    desk("add", "two", "--url", "https://${SITE}/mcp")
    desk("add", "three", "--url", "${ADDRESS}")
    assert "DATA is not set" in desk.errors.getvalue()
    assert "${ROOT}/bin/serve" in desk.context.home().config.read_text()
    one, two, three = desk.config.mcp_servers.values()
    assert (one.command, one.args) == ("/srv/bin/serve", ("${DATA}/x", "--${FLAG}"))
    assert (two.url, three.url) == ("https://${SITE}/mcp", "${ADDRESS}")
    assert "DATA is not set" in desk.listed()["one"]["trouble"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["add", "x"], UsageError),
        (["add", "x", "--url", "nowhere"], UsageError),
        (["add", "file", "--command", "sh"], UsageError),
        (["add", "x", "--env", "A", "--command", "sh"], UsageError),
        (["add", "one", "--command", "other"], UsageError),
        (["remove", "two"], NotFound),
        (["test", "two"], NotFound),
    ],
)
def test_what_cannot_be_is_refused(desk: Desk, words: list[str], error: type[HermesError]) -> None:
    desk("add", "one", "--command", "sh")
    before = desk.config.mcp_servers
    with pytest.raises(error) as caught:
        desk(*words)
    assert caught.value.hint or words[3:4] == ["A"]
    assert desk.config.mcp_servers == before


def test_their_tools_are_switched_like_all_others(desk: Desk) -> None:
    desk("add", "one", "--command", "sh")
    desk("add", "two", "--command", "sh")

    def on(platform: str = "cli") -> set[str]:
        rows = json.loads(desk.tools("list", "--json", "--platform", platform))
        return {row["name"] for row in rows if row["on"][platform]} & {"one", "two"}

    assert on() == {"one", "two"}
    desk.tools("disable", "one", "--platform", "cli")
    assert (on(), on("api_server")) == ({"two"}, {"two"})
    desk.tools("disable", "two", "--platform", "cli")
    assert on() == set()
    desk.tools("enable", "one", "--platform", "cli")
    assert on() == {"one"}
    desk.tools("disable", "one")
    assert (on(), desk.listed()["one"]["state"]) == (set(), "off")
    desk.tools("enable", "one", "two")
    assert on() == {"one", "two"}


def test_no_secret_is_listed_however_short(desk: Desk) -> None:
    desk.env = Env({**desk.env, "PIN": "abc"})
    home = desk.context.home()
    home.path.mkdir()
    args = '[-x, "${PIN}", --token, t1, y]'
    home.config.write_text(f"mcp_servers: {{one: {{command: sh, args: {args}}}}}\n")
    desk("add", "two", "--command", "sh", "--args", "--api-key=k9", "A_SECRET=s3", "z")
    assert desk.listed()["one"]["where"] == "sh -x ${PIN} --token [redacted] y"
    assert desk.listed()["two"]["where"] == "sh --api-key=[redacted] A_SECRET=[redacted] z"


@pytest.mark.anyio
async def test_two_servers_with_one_name_to_a_model(desk: Desk) -> None:
    desk("add", "a.b", "--command", "sh")
    with pytest.raises(UsageError, match=r"could not tell its name from that of 'a\.b'"):
        desk("add", "a_b", "--command", "sh")
    with pytest.raises(UsageError, match="no two dots or underscores in a row"):
        desk("add", "a__b", "--command", "sh")
    config = desk.context.home().config
    config.write_text("mcp_servers: {a.b: {command: sh}, a_b: {command: sh}}\n")
    [(grade, says)] = await desk.checked()
    assert (grade, "from that of 'a.b'" in says) == (Grade.ERROR, True)
    assert "a.b" in desk.listed()["a_b"]["trouble"]


@pytest.mark.anyio
async def test_the_doctor_looks_at_them(desk: Desk) -> None:
    assert await desk.checked() == []
    desk("add", "one", "--command", "sh")
    assert [grade for grade, _ in await desk.checked()] == [Grade.OK]
    desk("add", "two", "--command", "no-such-program")
    desk("add", "three", "--url", "http://a.example", "--header", "A=${UNSET}")
    found = await desk.checked()
    assert [grade for grade, _ in found] == [Grade.WARNING, Grade.ERROR]
    assert "no-such-program is not installed" in found[0][1]
