"""The command that chooses who runs the turns."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.schema.errors import HermesError
from hermes.schema.scope import Role
from support.slash_commands import command_harness

pytestmark = pytest.mark.anyio


async def test_it_is_shown_and_chosen(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert "our own loop" in await at.read("/codex-runtime")
        assert await at.read("/codex-runtime codex_app_server") == "Now codex_app_server."
        assert "run by codex" in await at.read("/codex-runtime status")
        assert await at.read("/codex-runtime AUTO") == "Now auto."
        with pytest.raises(HermesError, match="takes auto or codex_app_server"):
            await at.type("/codex-runtime sideways")


async def test_where_there_is_no_choice_it_says_so(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        services = structs.replace(at.context.services, runtimes=None)
        at.context = structs.replace(at.context, services=services)
        with pytest.raises(HermesError):
            await at.type("/codex-runtime")


async def test_only_an_owner_chooses(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats(Role.MEMBER)
        with pytest.raises(HermesError):
            await at.type("/codex-runtime codex_app_server")


async def test_servers_are_connected_anew_when_that_is_meant(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert "/reload-mcp now" in await at.read("/reload-mcp")
        assert await at.read("/reload-mcp now") == "play: ready, 3 tools"
