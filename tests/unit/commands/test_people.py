"""`/link`: where it works, and what it says."""

from pathlib import Path

import pytest

from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Role
from support.slash_commands import command_harness


async def test_code_is_shown_in_a_direct_chat_only(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat(Role.GUEST, account="fake:7", direct=True)
        assert "/link ABCDEFGH" in await harness.run_text("/link")
        assert "is not linked" in await harness.run_text("/link list")
        harness.as_chat(Role.GUEST, account="fake:7", direct=False)
        for line in ("/link", "/link ABCDEFGH", "/link ABCDEFGH yes", "/link list"):
            with pytest.raises(UsageError, match="Others can read this chat"):
                await harness.run(line)


async def test_owner_is_sent_to_the_command_line(tmp_path: Path) -> None:
    """So that nobody talks the owner into sending a code."""
    async with command_harness(tmp_path) as harness:
        harness.as_chat(Role.OWNER, account="fake:7", direct=True)
        for line in ("/link", "/link ABCDEFGH", "/link ABCDEFGH yes"):
            with pytest.raises(UsageError) as caught:
                await harness.run(line)
            assert caught.value.hint == "Run: hermes people link fake:7 PLATFORM:USER"


async def test_wrong_use_is_explained(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat(Role.MEMBER, account="fake:7", direct=True)
        for line, why in (
            ("/link ABCDEFGH no", "takes a code"),
            ("/link a b c", "takes a code"),
            ("/link remove", "is not linked"),
        ):
            with pytest.raises(UsageError, match=why):
                await harness.run(line)
        borrowed = Address("fake@work", "1")
        harness.as_chat(Role.MEMBER, account="fake:7", direct=True, address=borrowed)
        with pytest.raises(UsageError, match="another profile's account"):
            await harness.run("/link")
