"""`/codex-runtime` and `/reload-mcp`."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.schema.errors import HermesError
from hermes.schema.scope import Role
from support.slash_commands import command_harness

pytestmark = pytest.mark.anyio


async def test_runtime_is_shown_and_chosen(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "run by Hermes" in await harness.read("/codex-runtime")
        assert await harness.read("/codex-runtime codex_app_server") == "Now codex_app_server."
        assert "run by codex" in await harness.read("/codex-runtime status")
        assert await harness.read("/codex-runtime AUTO") == "Now auto."
        with pytest.raises(HermesError, match="takes auto or codex_app_server"):
            await harness.type("/codex-runtime sideways")


async def test_runtime_is_refused_without_service(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        services = structs.replace(harness.context.services, runtimes=None)
        harness.context = structs.replace(harness.context, services=services)
        with pytest.raises(HermesError):
            await harness.type("/codex-runtime")


async def test_only_an_owner_chooses_the_runtime(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.chats(Role.MEMBER)
        with pytest.raises(HermesError):
            await harness.type("/codex-runtime codex_app_server")


async def test_reload_mcp_needs_confirmation(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "/reload-mcp now" in await harness.read("/reload-mcp")
        assert await harness.read("/reload-mcp now") == "play: ready, 3 tools"
