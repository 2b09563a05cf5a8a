"""`/codex-runtime` and `/reload-mcp`."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.schema.errors import HermesError
from hermes.schema.scope import Role
from support.slash_commands import command_harness


async def test_runtime_is_shown_and_chosen(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "run by Hermes" in await harness.run_text("/codex-runtime")
        assert await harness.run_text("/codex-runtime codex_app_server") == "Now codex_app_server."
        assert "run by codex" in await harness.run_text("/codex-runtime status")
        assert await harness.run_text("/codex-runtime AUTO") == "Now auto."
        with pytest.raises(HermesError, match="takes auto or codex_app_server"):
            await harness.run("/codex-runtime sideways")


async def test_runtime_is_refused_without_service(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        services = structs.replace(harness.context.services, runtimes=None)
        harness.context = structs.replace(harness.context, services=services)
        with pytest.raises(HermesError):
            await harness.run("/codex-runtime")


async def test_only_an_owner_chooses_the_runtime(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat(Role.MEMBER)
        with pytest.raises(HermesError):
            await harness.run("/codex-runtime codex_app_server")


async def test_reload_mcp_needs_confirmation(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "/reload-mcp now" in await harness.run_text("/reload-mcp")
        assert await harness.run_text("/reload-mcp now") == "play: ready, 3 tools"
