"""`hermes gateway setup` asks for a token, checks it with the platform and says what is missing."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio
import pexpect
import pytest

from hermes.testing.telegram.server import TelegramServer, serve_telegram
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult, HermesCli, exit_status
from support.telegram import TOKEN, emulator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncGenerator[TelegramServer]:
    async with serve_telegram(emulator()) as server:
        yield server


@pytest.fixture
def hermes(tmp_path: Path, server: TelegramServer) -> HermesCli:
    one = HermesCli(tmp_path, "http://127.0.0.1:1")
    one.configure(f"platforms:\n  telegram:\n    extra: {{base_url: '{server.url}'}}\n")
    return one


async def run(hermes: HermesCli, *words: str, token: str = TOKEN) -> CliResult:
    command = partial(hermes, "gateway", "setup", *words, stdin=f"{token}\n".encode())
    return await anyio.to_thread.run_sync(command)


async def test_token_is_checked_and_stored(hermes: HermesCli, server: TelegramServer) -> None:
    ran = await run(hermes, "telegram", "--token-stdin", "--allow", "1001,1002")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Connected as @hermes_test_bot.")
    assert "/setprivacy" in ran.out
    assert TOKEN not in ran.out
    stored = (hermes.home / ".env").read_text()
    assert f"TELEGRAM_BOT_TOKEN={TOKEN}" in stored
    assert "TELEGRAM_ALLOWED_USERS=1001,1002" in stored
    server.telegram.bot.reads_groups = True
    again = await run(hermes, "telegram", "--token-stdin")
    assert "Note" not in again.out


async def test_refused_token_is_not_stored(hermes: HermesCli) -> None:
    ran = await run(hermes, "telegram", "--token-stdin", token="4242:wrong")
    assert ran.code == 1
    assert "does not accept the bot token" in ran.err
    assert not (hermes.home / ".env").exists()


async def test_platform_without_setup_is_named(hermes: HermesCli) -> None:
    ran = await run(hermes, "pigeon", "--token-stdin")
    assert (ran.code, "There is: telegram" in ran.err) == (2, True)


@pytest.mark.slow
async def test_questions_at_a_terminal(hermes: HermesCli) -> None:
    def talk() -> int | None:
        child = pexpect.spawn(
            HERMES_PROGRAM,
            ["gateway", "setup"],
            env={**hermes.env, "TERM": "dumb"},
            timeout=TEST_TIMEOUT,
            encoding="utf-8",
        )
        child.expect("Which chat app")
        child.expect(r"Number or name \[telegram\]: ")
        child.sendline("")
        child.expect("BotFather")
        child.expect("Token for Telegram")
        child.sendline("4242:wrong")
        child.expect("does not accept the bot token")
        child.expect("Token for Telegram")
        child.sendline(TOKEN)
        child.expect("Connected as @hermes_test_bot")
        child.expect("User ids")
        child.sendline("-")
        child.expect("hermes pairing approve telegram CODE")
        child.expect(pexpect.EOF)
        return exit_status(child)

    assert await anyio.to_thread.run_sync(talk) == 0
    assert TOKEN in (hermes.home / ".env").read_text()
