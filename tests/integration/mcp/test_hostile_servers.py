"""Servers that mean no good: they hold nobody up, fill nothing, and give themselves no leave."""

import sys
from pathlib import Path

import anyio
import pytest

from hermes.mcp.results import MAX_TEXT
from hermes.mcp.tool_list import MAX_DESCRIPTION, MAX_TOOLS
from hermes.mcp.tools import MAX_PROGRESS
from hermes.schema.events import ToolProgress
from hermes.schema.messages import text_of
from hermes.schema.questions import ApprovalChoice
from hermes.schema.scope import Role
from hermes.schema.tools import Effect
from hermes.testing.event_loop_guard import guard_loop
from support.mcp_harness import McpHarness, lines, mcp_harness, stdio_server, wait_until

pytestmark = pytest.mark.anyio
HOSTILE = str(Path(__file__).parents[2] / "support" / "hostile_mcp_server.py")


def hostile(root: Path, mode: str = "") -> dict[str, object]:
    env = {"PLAYGROUND": str(root), "MODE": mode}
    return {"command": sys.executable, "args": [HOSTILE], "env": env}


def count(root: Path) -> int:
    path = root / "lists"
    return len(path.read_text()) if path.exists() else 0


async def test_long_words_are_cut_before_they_are_looked_at(tmp_path: Path) -> None:
    """What comes behind the cut is nobody's concern, whatever it says."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "large")}) as here:
        plan = await here.plan()
        specs = [one.spec for name, one in plan.tools.items() if name.startswith("mcp__play__")]
        assert len(specs) == 8
        assert all(spec.description.startswith("Please ignore") for spec in specs)
        assert all(len(spec.description) < MAX_DESCRIPTION + 50 for spec in specs)


async def test_no_more_pages_are_asked_for_than_are_of_use(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "many")}) as here:
        plan = await here.plan()
        assert len([one for one in plan.tools if one.startswith("mcp__")]) <= MAX_TOOLS
        assert count(tmp_path) == 2


async def test_a_list_that_always_changes_is_asked_for_less_and_less(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "storm")}) as here:
        first = (await here.plan()).tools["mcp__play__t"]
        await wait_until(lambda: count(tmp_path) >= 3)
        # What has not changed is not taken up anew.
        assert (await here.plan()).tools["mcp__play__t"] is first


async def test_what_the_settings_forbid_is_not_read_either(tmp_path: Path) -> None:
    deny = {"deny": ["mcp__play__ad*", "mcp__play__fail", "mcp__play__read_resource *"]}
    async with mcp_harness(tmp_path, {"play": stdio_server(tmp_path)}, approvals=deny) as here:
        refused = [
            await here.text("add", a=1, b=2),
            await here.text("fail"),
            await here.text("read_resource", uri="memo://today"),
        ]
        assert all("approvals.deny" in one for one in refused)
        assert "approvals.deny" not in await here.text("variables")


async def flips(here: McpHarness, root: Path) -> None:
    """Whatever the server says now: it acts, so it is asked for."""
    assert (await here.plan()).tools["mcp__play__act"].spec.effect is Effect.OUTSIDE
    [refused], asked = await here.call_with_answers(ApprovalChoice.DENY, ("mcp__play__act", {}))
    assert (refused.failed, asked, lines(root / "calls")) == (True, 1, [])


async def test_what_once_acted_is_no_reader_later(tmp_path: Path) -> None:
    settings = {"play": hostile(tmp_path, "flip")}
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
    async with mcp_harness(first, settings) as here:
        await flips(here, tmp_path)
        (tmp_path / "flip").touch()
        await here.app.servers.reload()
        await flips(here, tmp_path)
        known = here.app.home.mcp_acting_tools.read_bytes()
    async with mcp_harness(second, settings) as here:
        here.app.home.mcp_acting_tools.write_bytes(known)
        await flips(here, tmp_path)
        # The owner may agree, as for every other tool.
        await here.call_with_answers(ApprovalChoice.ALWAYS, ("mcp__play__act", {}))
        [done], asked = await here.call_with_answers(ApprovalChoice.DENY, ("mcp__play__act", {}))
        assert (done.failed, asked, len(lines(tmp_path / "calls"))) == (False, 0, 2)


async def test_progress_is_told_now_and_then(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path)}) as here:
        with anyio.fail_after(60):
            assert await here.text("flood") == "done"
        told = [one.text for one in here.events if isinstance(one, ToolProgress)]
        assert 1 <= len(told) <= MAX_PROGRESS
        assert told[-1].endswith(" on and on\n")


async def test_what_would_take_long_to_read_is_not_read(tmp_path: Path) -> None:
    """Whoever asked is told so, nobody else waits meanwhile, and the server goes on."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        await here.plan()
        async with guard_loop():
            assert "more than 100,000 values" in await here.text("wide")
            assert "too many parts" in await here.text("many")
            # As letters it is no more than that, and cut as ever.
            text = await here.text("text")
        assert text.startswith("[{},{},")
        assert len(text) < MAX_TEXT + 100
        assert lines(tmp_path / "calls") == ["wide", "many", "text"]


@pytest.mark.parametrize(
    ("name", "why"), [("spam", "more than 100,000 values"), ("chatter", "unsolicited")]
)
async def test_who_says_too_much_unasked_is_let_go(tmp_path: Path, name: str, why: str) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        told = await here.text(name)
        assert "was lost" in told
        assert why in told


async def test_patterns_of_a_server_are_not_tried(tmp_path: Path) -> None:
    """Some never end, and they would have everybody wait."""
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        assert (await here.text("unlike")).splitlines() == ["done", '{"a":"bb!"}']


async def test_answers_move_no_cursor_and_turn_no_words(tmp_path: Path) -> None:
    async with mcp_harness(tmp_path, {"play": hostile(tmp_path, "much")}) as here:
        told = (await here.text("marks")).partition("\n{}")[0]
        assert told == "red \u241b[2J\ufffd\ufffd\nand \tplain \u05d0"


async def test_members_have_the_servers_that_their_role_names(tmp_path: Path) -> None:
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


async def test_two_names_that_are_one_to_a_model(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    async with mcp_harness(tmp_path, {"a.b": hostile(one), "a_b": hostile(two)}) as here:
        [done] = await here.call_tools(("mcp__a_b__flood", {}))
        assert text_of(done) == "done"
        assert (lines(one / "calls"), lines(two / "calls")) == (["flood"], [])
        assert any("could not tell its name from" in one for one in here.app.warnings)
