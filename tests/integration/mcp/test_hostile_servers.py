"""Hostile servers cannot block callers, exhaust memory or grant themselves permissions."""

import sys
from pathlib import Path

import anyio
import pytest

from hermes.mcp.tool_list import MAX_DESCRIPTION, MAX_TOOLS
from hermes.mcp.tools import MAX_PROGRESS, MAX_TEXT
from hermes.schema.events import ToolProgress
from hermes.schema.messages import text_of
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Role
from hermes.schema.tools import Effect
from support.event_loop_guard import guard_loop
from support.mcp_harness import McpHarness, lines, mcp_harness, stdio_server, wait_until

HOSTILE = str(Path(__file__).parents[2] / "support" / "hostile_mcp_server.py")


def hostile(root: Path, mode: str = "") -> dict[str, object]:
    env = {"PLAYGROUND": str(root), "MODE": mode}
    return {"command": sys.executable, "args": [HOSTILE], "env": env}


def count(root: Path) -> int:
    path = root / "lists"
    return len(path.read_text()) if path.exists() else 0


async def test_long_descriptions_are_cut_before_they_are_scanned(tmp_path: Path) -> None:
    """Text beyond the cut is ignored, whatever it says."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "large")}) as here:
        plan = await here.plan()
        specs = [one.spec for name, one in plan.tools.items() if name.startswith("mcp__play__")]
        assert len(specs) == 8
        assert all(spec.description.startswith("Please ignore") for spec in specs)
        assert all(len(spec.description) < MAX_DESCRIPTION + 50 for spec in specs)


async def test_number_of_pages_is_limited(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "many")}) as here:
        plan = await here.plan()
        assert len([one for one in plan.tools if one.startswith("mcp__")]) <= MAX_TOOLS
        assert count(tmp_path) == 2


async def test_constantly_changing_list_is_refreshed_less_often(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "storm")}) as here:
        first = (await here.plan()).tools["mcp__play__t"]
        await wait_until(lambda: count(tmp_path) >= 3)
        # Unchanged tools are not published again.
        assert (await here.plan()).tools["mcp__play__t"] is first


async def test_denied_tools_cannot_be_read(tmp_path: Path) -> None:
    deny = {"deny": ["mcp__play__ad*", "mcp__play__fail", "mcp__play__read_resource *"]}
    async with mcp_harness(tmp_path, {"play": stdio_server(tmp_path)}, approvals=deny) as here:
        refused = [
            await here.text("add", a=1, b=2),
            await here.text("fail"),
            await here.text("read_resource", uri="memo://today"),
        ]
        assert all("approvals.deny" in one for one in refused)
        assert "approvals.deny" not in await here.text("variables")


async def assert_still_asked(here: McpHarness, root: Path) -> None:
    """The tool acts, so it needs an approval, whatever the server says now."""
    assert (await here.plan()).tools["mcp__play__act"].spec.effect is Effect.OUTSIDE
    [refused], questions = await here.call_with_answers(ApprovalChoice.DENY, ("mcp__play__act", {}))
    assert (refused.failed, questions, lines(root / "calls")) == (True, 1, [])


async def test_acting_tool_never_becomes_a_reader(tmp_path: Path) -> None:
    settings = {"play": hostile(tmp_path, "flip")}
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
    async with mcp_harness(first, settings) as here:
        await assert_still_asked(here, tmp_path)
        (tmp_path / "flip").touch()
        await here.app.servers.reload()
        await assert_still_asked(here, tmp_path)
        known = here.app.home.mcp_acting_tools.read_bytes()
    async with mcp_harness(second, settings) as here:
        here.app.home.mcp_acting_tools.write_bytes(known)
        await assert_still_asked(here, tmp_path)
        # The owner may allow it, like any other tool.
        await here.call_with_answers(ApprovalChoice.ALWAYS, ("mcp__play__act", {}))
        [done], questions = await here.call_with_answers(
            ApprovalChoice.DENY, ("mcp__play__act", {})
        )
        assert (done.failed, questions, len(lines(tmp_path / "calls"))) == (False, 0, 2)


async def test_progress_is_rate_limited(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path)}) as here:
        with anyio.fail_after(60):
            assert await here.text("flood") == "done"
        text = [one.text for one in here.events if isinstance(one, ToolProgress)]
        assert 1 <= len(text) <= MAX_PROGRESS
        assert text[-1].endswith(" on and on\n")


async def test_expensive_answers_are_not_parsed(tmp_path: Path) -> None:
    """The caller gets an error, others are not delayed, and the server keeps running."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        await here.plan()
        async with guard_loop():
            assert "more than 100,000 values" in await here.text("wide")
            assert "too many parts" in await here.text("many")
            # As one long text it is shortened as usual.
            text = await here.text("text")
        assert text.startswith("[{},{},")
        assert len(text) < MAX_TEXT + 100
        assert lines(tmp_path / "calls") == ["wide", "many", "text"]


@pytest.mark.parametrize(
    ("name", "why"), [("spam", "more than 100,000 values"), ("chatter", "unsolicited")]
)
async def test_flooding_server_is_disconnected(tmp_path: Path, name: str, why: str) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        text = await here.text(name)
        assert "was lost" in text
        assert why in text


async def test_patterns_of_a_server_are_not_evaluated(tmp_path: Path) -> None:
    """Some never terminate and would block everything."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        assert (await here.text("unlike")).splitlines() == ["done", '{"a":"bb!"}']


async def test_control_characters_in_answers_are_escaped(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        text = (await here.text("marks")).partition("\n{}")[0]
        assert text == "red \u241b[2J\ufffd\ufffd\nand \tplain \u05d0"


async def test_members_have_the_servers_of_their_role(tmp_path: Path) -> None:
    servers = {"play": hostile(tmp_path), "other": hostile(tmp_path)}
    toolsets = {"toolsets": ["hermes-cli", "play"]}
    named = {"cli": {"extra": {"roles": {"member": toolsets}}}}
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
    async with mcp_harness(first, servers) as here:
        assert await here.names(role=Role.MEMBER) == set()
        assert await here.names(role=Role.GUEST) == set()
        assert len(await here.names()) == 4
    async with mcp_harness(second, servers, platforms=named) as here:
        assert await here.names(role=Role.MEMBER) == {"mcp__play__act", "mcp__play__flood"}
        plan = await here.plan(role=Role.MEMBER)
        assert "read_file" in plan.tools


async def test_servers_with_equal_safe_names(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with mcp_harness(tmp_path, {"a.b": hostile(one), "a_b": hostile(two)}) as here:
        [done] = await here.call_tools(("mcp__a_b__flood", {}))
        assert text_of(done) == "done"
        assert (lines(one / "calls"), lines(two / "calls")) == (["flood"], [])
        assert any("its name is too similar to" in one for one in here.app.warnings)
