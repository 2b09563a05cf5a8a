"""MCP servers made with the official SDK, used as tools of the agent."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from hermes.config.home import Home
from hermes.schema.messages import Media, text_of
from hermes.schema.questions import ApprovalChoice
from hermes.schema.tools import Effect
from support.cli_process import TEST_TIMEOUT
from support.mcp_harness import (
    McpHarness,
    http_server,
    is_alive,
    lines,
    mcp_harness,
    stdio_server,
    wait_until,
)

CANARY = "canary-4711-0815-secret"


class Shared(NamedTuple):
    """A server shared by the tests of this file; its files are in `root`."""

    root: Path
    settings: dict[str, object]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    root = tmp_path_factory.mktemp("site")
    with http_server(root) as url:
        yield Shared(root, {"url": url, "headers": {"X-Token": CANARY}})


async def test_server_features_are_available_in_a_turn(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": stdio_server(tmp_path, TOKEN=CANARY)}) as here:
        plan = await here.plan()
        add, note = plan.tools["mcp__play__add"].spec, plan.tools["mcp__play__note"].spec
        assert (add.effect, note.effect) == (Effect.READ, Effect.OUTSIDE)
        assert (add.toolset, add.foreign) == ("play", True)
        assert "Ignore" not in plan.tools["mcp__play__poison"].spec.description
        sums, failed, seen, long = await here.call_tools(
            ("mcp__play__add", {"a": 1, "b": 2}),
            ("mcp__play__fail", {}),
            ("mcp__play__picture", {}),
            ("mcp__play__poison", {}),
        )
        assert (text_of(sums), sums.failed, sums.foreign) == ("3", False, True)
        assert failed.failed
        [picture] = seen.parts
        assert isinstance(picture, Media)
        assert picture.media_type == "image/png"
        assert len(text_of(long)) < 110_000
        read = await here.text("read_resource", uri="memo://today")
        assert read.endswith("Nothing.")
        await _assert_secrets_are_kept(here)
        await _assert_cancelled_call_returns(here, tmp_path)


async def _assert_secrets_are_kept(here: McpHarness) -> None:
    """The server gets the configured environment and none of ours."""
    seen = json.loads(await here.text("variables"))
    assert "OPENAI_API_KEY" not in seen
    assert not [name for name in seen if name.startswith("HERMES")]
    assert (seen["TOKEN"], seen["PLAYGROUND"]) == ("[redacted]", str(here.root))
    log = here.app.home.logs / "mcp-stderr.log"
    await wait_until(lambda: any("play: PLAIN [redacted]" in line for line in lines(log)))
    assert CANARY not in log.read_text()


async def _assert_cancelled_call_returns(here: McpHarness, root: Path) -> None:
    """A cancelled call returns, and the server stays connected."""
    (root / "hangs").unlink(missing_ok=True)
    with anyio.fail_after(TEST_TIMEOUT):
        async with anyio.create_task_group() as turn:
            turn.start_soon(here.call_tools, ("mcp__play__hang", {}))
            await wait_until((root / "hangs").exists)
            turn.cancel_scope.cancel()
    assert await here.text("add", a=2, b=2) == "4"
    assert dict(here.app.servers.states())["play"].startswith("ready")


async def test_slow_call_times_out(tmp_path: Path, shared: Shared) -> None:
    async with mcp_harness(tmp_path, {"play": {**shared.settings, "timeout": 0.2}}) as here:
        [result] = await here.call_tools(("mcp__play__hang", {}))
        assert result.failed
        assert "did not answer within 0.2 s" in text_of(result)


async def test_crashed_server_is_restarted(tmp_path: Path) -> None:
    """Reads are repeated; the outcome of anything else is unknown."""
    async with mcp_harness(
        tmp_path, {"play": stdio_server(tmp_path)}, approvals={"mode": "off"}
    ) as here:
        first = json.loads(await here.text("variables"))["pid"]
        assert await here.text("crash_once") == "Still here."
        assert json.loads(await here.text("variables"))["pid"] != first
        assert "is not known" in await here.text("crash")
    assert not is_alive(first)


async def test_server_over_http(tmp_path: Path, shared: Shared) -> None:
    async with mcp_harness(tmp_path, {"play": shared.settings}) as here:
        assert await here.text("add", a=20, b=3) == "23"
        await _assert_cancelled_call_returns(here, shared.root)


async def test_server_with_sse_transport(tmp_path: Path) -> None:
    with http_server(tmp_path, "--sse") as url:
        async with mcp_harness(tmp_path, {"play": {"url": url, "transport": "sse"}}) as here:
            assert await here.text("add", a=20, b=3) == "23"
            await _assert_cancelled_call_returns(here, tmp_path)


async def test_acting_tool_needs_approval(tmp_path: Path, shared: Shared) -> None:
    note, notes = ("mcp__play__note", {"text": "one"}), shared.root / "notes"
    async with mcp_harness(tmp_path, {"play": shared.settings}) as here:
        [refused], questions = await here.call_with_answers(ApprovalChoice.DENY, note)
        assert (refused.failed, questions, lines(notes)) == (True, 1, [])
        assert "every call of this tool of the MCP server play" in here.questions[-1]
        [done], questions = await here.call_with_answers(ApprovalChoice.SESSION, note)
        assert (text_of(done), questions, lines(notes)) == ("Noted.", 1, ["one"])
        other = ("mcp__play__note", {"text": "two"})
        [_], questions = await here.call_with_answers(ApprovalChoice.DENY, other)
        assert (questions, lines(notes)) == (0, ["one", "two"])
        # Untrusted content in the turn: approvals for the session no longer count.
        _, questions = await here.call_with_answers(
            ApprovalChoice.DENY, ("mcp__play__add", {"a": 1, "b": 1}), note
        )
        assert (questions, len(lines(notes))) == (1, 2)
        # Permanent approvals still do.
        await here.call_with_answers(
            ApprovalChoice.ALWAYS, ("mcp__play__add", {"a": 1, "b": 1}), note
        )
        _, questions = await here.call_with_answers(
            ApprovalChoice.DENY, ("mcp__play__add", {"a": 1, "b": 1}), note
        )
        assert (questions, len(lines(notes))) == (0, 4)
        [unasked] = await here.call_tools(("mcp__play__crash", {}), attended=False)
        assert "no one can be asked here" in text_of(unasked)


async def test_profiles_do_not_share_servers(tmp_path: Path) -> None:
    """One uses a server of the older protocol."""
    pids = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    async with (
        mcp_harness(tmp_path / "one", {"play": stdio_server(tmp_path / "one")}) as one,
        mcp_harness(tmp_path / "two", {"play": stdio_server(tmp_path / "two", OLD="1")}) as two,
    ):
        for here in (one, two):
            await _assert_new_tools_appear(here)
            await _assert_questions_are_relayed(here)
            seen = json.loads(await here.text("variables"))
            assert seen["PLAYGROUND"] == str(here.root)
            pids.add(seen["pid"])
    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)


async def _assert_new_tools_appear(here: McpHarness) -> None:
    """New tools are available in the next turn."""
    assert "mcp__play__plus" not in await here.names()
    before = here.app.servers.states()
    assert await here.text("grow") == "Grown."
    await wait_until(lambda: here.app.servers.states() != before)
    assert "mcp__play__plus" in await here.names()


async def _assert_questions_are_relayed(here: McpHarness) -> None:
    """A server asks the user, if one is present."""
    found, _ = await here.call_with_answers("Ann", ("mcp__play__greet", {}))
    assert text_of(found[0]) == "Hello, Ann."
    assert "The MCP server play asks: Who is there?" in here.questions[-1]
    [declined] = await here.call_tools(("mcp__play__greet", {}), attended=False)
    assert text_of(declined) in {"cancel", "decline"}


async def test_failing_servers_do_not_delay_a_turn(tmp_path: Path) -> None:
    servers = {
        "absent": {"command": "no-such-program"},
        "silent": {"command": "sleep", "args": ["1000"], "connect_timeout": 1000},
        "broken": {"command": "sh", "args": ["-c", "echo it is Monday >&2; exit 3"]},
        "wrong": {"url": "ftp://nowhere"},
        "off": {"command": "sleep", "enabled": False},
    }
    async with mcp_harness(tmp_path, servers, mcp_discovery_timeout=0.1) as here:
        with anyio.fail_after(TEST_TIMEOUT):
            assert await here.names() == set()
        states = here.app.servers.states
        # They are retried from time to time.
        await wait_until(lambda: "Monday" in dict(states())["broken"])
        await wait_until(lambda: "No such file" in dict(states())["absent"])
        assert "its url" in dict(states())["wrong"]
        assert [one for one in here.app.warnings if "its url" in one]
        assert dict(states())["silent"].startswith("connecting")
        assert "off" not in dict(states())


async def test_slow_server_is_available_in_the_next_turn(tmp_path: Path, shared: Shared) -> None:
    async with mcp_harness(tmp_path, {"play": shared.settings}, mcp_discovery_timeout=0) as here:
        assert await here.names() == set()
        await wait_until(lambda: dict(here.app.servers.states())["play"].startswith("ready"))
        assert "mcp__play__add" in await here.names()


async def test_settings_are_reloaded(tmp_path: Path) -> None:
    """A slow server has ended before the next one starts."""
    real = stdio_server(tmp_path)
    alone = 'test -e ../pid && kill -0 "$(cat ../pid)" 2>/dev/null && exit 1; echo $$ > ../pid'
    script = f"{alone}; trap 'sleep 0.3' EXIT; trap exit TERM; \"$@\"; true"
    arguments = ["-c", script, "sh", real["command"], *real["args"]]
    settings = {"mcp_servers": {"play": {**real, "command": "sh", "args": arguments}}}
    async with mcp_harness(tmp_path, {}) as here:
        assert await here.names() == set()
        config = Home(root=tmp_path / "home", path=tmp_path / "home").config
        config.write_text(json.dumps({**settings, "mcp_discovery_timeout": TEST_TIMEOUT}))
        assert "play: ready" in await here.app.servers.reload()
        assert "mcp__play__add" in await here.names()
        settings |= {"platform_toolsets": {"cli": ["file", "no_mcp"]}}
        config.write_text(json.dumps({**settings, "mcp_discovery_timeout": TEST_TIMEOUT}))
        assert "play: ready" in await here.app.servers.reload()
        assert await here.names() == set()
        assert here.app.toolbox.toolsets()["play"]
        pid = (tmp_path / "pid").read_text().strip()
        config.write_text("{}")
        assert "No MCP servers" in await here.app.servers.reload()
        assert "play" not in here.app.toolbox.toolsets()
        assert not is_alive(pid)


async def test_unused_server_idles(tmp_path: Path, shared: Shared) -> None:
    settings = {**shared.settings, "idle_timeout_seconds": 0.05}
    async with mcp_harness(tmp_path, {"play": settings}) as here:
        assert "mcp__play__add" in await here.names()
        await wait_until(lambda: dict(here.app.servers.states())["play"].startswith("resting"))
        assert "mcp__play__add" in await here.names()
        assert await here.text("add", a=5, b=5) == "10"
