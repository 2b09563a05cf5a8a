"""Tools of a profile open a principal's own files, and nothing of others."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs

from hermes.app.references import build_references
from hermes.schema.errors import ToolError
from hermes.schema.messages import Media, Text
from hermes.schema.scope import Role, Scope
from hermes.tools.paths import TMP_FOLDERS
from support.app_profile import call_tool, make_scope, open_profile, output_json

SETTINGS = "tool_output:\n  max_bytes: 1000\n"
LONG = "seq 1 1000; echo WORD"


def member(root: Path) -> Scope:
    return structs.replace(make_scope(root, role=Role.MEMBER), principal="test:mem", session="m")


def said(parts: Sequence[Text | Media]) -> str:
    return "".join(part.text for part in parts if isinstance(part, Text))


@pytest.mark.slow  # The wall has a /dev of its own, and `make check` may keep its files there.
async def test_long_output_is_readable_by_its_requester_only(tmp_path: Path) -> None:
    async with open_profile(tmp_path, SETTINGS) as app:
        owner, other = make_scope(tmp_path), member(tmp_path)
        printed = output_json(await call_tool(app, owner, "terminal", command=LONG))["full_output"]
        theirs = output_json(await call_tool(app, other, "terminal", command=LONG))["full_output"]
        for scope, path in ((owner, printed), (other, theirs)):
            page = output_json(await call_tool(app, scope, "read_file", path=path, offset=-1))
            assert "WORD" in str(page["content"])
            hits = output_json(
                await call_tool(app, scope, "search_files", path=path, pattern="WORD")
            )
            assert hits["total_count"] == 1
        with pytest.raises(ToolError, match="blocked for tools"):
            await call_tool(app, other, "read_file", path=printed)
        with pytest.raises(ToolError, match="blocked for tools"):
            await call_tool(app, other, "search_files", path=printed, pattern="WORD")
        around = str(tmp_path)
        found = output_json(
            await call_tool(app, other, "search_files", path=around, pattern="WORD")
        )
        assert str(printed) not in str(found)


async def test_temporary_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    async with open_profile(tmp_path, SETTINGS) as app:
        owner, other = make_scope(tmp_path), member(tmp_path)
        for scope in (owner, other):
            await call_tool(app, scope, "terminal", command="echo mine > /tmp/hermes-note")
            page = output_json(await call_tool(app, scope, "read_file", path="/tmp/hermes-note"))  # noqa: S108 - its own
            assert page["content"] == "1|mine"
        note = str(tmp_path / "home/cache/sandbox/tmp/hermes-note")
        for tool, more in (
            ("read_file", {}),
            ("write_file", {"content": "x"}),
            ("patch", {"old_string": "mine", "new_string": "yours"}),
        ):
            with pytest.raises(ToolError, match="blocked for tools"):
                await call_tool(app, other, tool, path=note, **more)
        done = output_json(await call_tool(app, other, "terminal", command="pwd", workdir="/tmp"))  # noqa: S108 - its own
        assert str(done["output"]).split() == [*map(str, TMP_FOLDERS[:1])]


@pytest.mark.parametrize("role", [Role.OWNER, Role.MEMBER])
@pytest.mark.parametrize("name", ["default", "work"])
async def test_profile_created_at_runtime_is_blocked(tmp_path: Path, name: str, role: Role) -> None:
    async with open_profile(tmp_path, SETTINGS, name) as app:
        scope = make_scope(tmp_path) if role is Role.OWNER else member(tmp_path)
        (tmp_path / "work" / "first").write_text("x")
        await call_tool(app, scope, "read_file", path="first")
        secret = tmp_path / "home/profiles/third/.env"
        secret.parent.mkdir(parents=True)
        state = tmp_path / "home/gateway_state.json"
        state.write_text("{}")
        secret.write_text("KEY=x")
        (tmp_path / "work" / "second").hardlink_to(secret)
        for path in (str(secret), "second", str(state)):
            with pytest.raises(ToolError, match="blocked for tools"):
                await call_tool(app, scope, "read_file", path=path)
        attached = await build_references(app).expand([Text(f"@file:{secret}")], scope)
        assert "not attached" in said(attached)
