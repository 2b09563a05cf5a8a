"""`hermes gateway setup` asks for a token, checks it with the platform and says what is missing."""

import json
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import anyio
import pexpect
import pytest

from emulators.discord.server import DiscordServer, serve_discord
from emulators.irc.server import serve_irc
from emulators.irc.state import EmulatedIrc
from emulators.qqbot.check import addresses
from emulators.qqbot.server import serve_qq
from emulators.qqbot.state import ANN, APP_ID, SECRET, EmulatedQq
from emulators.slack.server import SlackServer, serve_slack
from emulators.slack.state import SCOPES
from emulators.telegram.server import TelegramServer, serve_telegram
from hermes.cli.verbs.gateway.setup import domain_of
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult, HermesCli, exit_status
from support.discord import TOKEN as DISCORD_TOKEN
from support.discord import emulator as discord_emulator
from support.irc import NICK
from support.mail import AGENT, PASSWORD, SmtpState, emulator_host, new_mail, serve_smtp
from support.slack import APP_TOKEN, SECOND_TOKEN
from support.slack import TOKEN as SLACK_TOKEN
from support.slack import emulator as slack_emulator
from support.telegram import TOKEN, emulator


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


async def test_platform_that_was_turned_off_is_turned_on(
    hermes: HermesCli, server: TelegramServer
) -> None:
    hermes.configure(f"telegram: {{enabled: false, base_url: '{server.url}'}}\n")
    ran = await run(hermes, "telegram", "--token-stdin")
    assert "Telegram was turned off in config.yaml; it is on again." in ran.out
    assert hermes("config", "get", "platforms.telegram.enabled").out.strip() == "true"
    assert "enabled: false" not in (hermes.home / "config.yaml").read_text()
    assert "turned off" not in (await run(hermes, "telegram", "--token-stdin")).out


async def test_refused_token_is_not_stored(hermes: HermesCli) -> None:
    ran = await run(hermes, "telegram", "--token-stdin", token="4242:wrong")
    assert ran.code == 1
    assert "does not accept the bot token" in ran.err
    assert not (hermes.home / ".env").exists()


@pytest.mark.parametrize("name", ["ann@example.org", "@ann:example.org"])
def test_server_is_suggested_from_the_name(name: str) -> None:
    assert domain_of(name) == "example.org"


async def test_platform_without_setup_is_named(hermes: HermesCli) -> None:
    ran = await run(hermes, "pigeon", "--token-stdin")
    assert ran.code == 2
    assert "Available: telegram, discord" in ran.err


class TestDiscord:
    @pytest.fixture
    async def discord(self) -> AsyncGenerator[DiscordServer]:
        async with serve_discord(discord_emulator()) as server:
            yield server

    @pytest.fixture
    def hermes(self, tmp_path: Path, discord: DiscordServer) -> HermesCli:
        one = HermesCli(tmp_path, "http://127.0.0.1:1")
        one.configure(f"platforms:\n  discord:\n    extra: {{base_url: '{discord.api_url}'}}\n")
        return one

    async def test_missing_intent_and_server_are_named(
        self, hermes: HermesCli, discord: DiscordServer
    ) -> None:
        discord.discord.bot.flags = 0
        ran = await run(hermes, "discord", "--token-stdin", token=DISCORD_TOKEN)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Connected as hermes.")
        assert "Turn on Message Content Intent" in ran.out
        assert "The bot is not in any server yet. Add it: https://discord.com/oauth2/" in ran.out
        assert f"DISCORD_BOT_TOKEN={DISCORD_TOKEN}" in (hermes.home / ".env").read_text()
        discord.discord.bot.flags = 1 << 19
        discord.discord.add_guild()
        again = await run(hermes, "discord", "--token-stdin", token=DISCORD_TOKEN)
        assert "Intent" not in again.out
        assert "To add the bot to a server: " in again.out

    async def test_refused_token_is_not_stored(self, hermes: HermesCli) -> None:
        ran = await run(hermes, "discord", "--token-stdin", token="a.wrong.token")
        assert ran.code == 1
        assert "Discord does not accept the bot token" in ran.err
        assert not (hermes.home / ".env").exists()


class TestSlack:
    @pytest.fixture
    async def slack(self) -> AsyncGenerator[SlackServer]:
        async with serve_slack(slack_emulator()) as server:
            yield server

    @pytest.fixture
    def hermes(self, tmp_path: Path, slack: SlackServer) -> HermesCli:
        one = HermesCli(tmp_path, "http://127.0.0.1:1")
        one.configure(f"platforms:\n  slack:\n    extra: {{base_url: '{slack.api_url}'}}\n")
        one.env["SLACK_APP_TOKEN"] = APP_TOKEN
        return one

    async def test_both_tokens_are_checked_and_missing_scopes_named(
        self, hermes: HermesCli, slack: SlackServer
    ) -> None:
        slack.slack.workspace.scopes -= {"files:read", "channels:history"}
        ran = await run(hermes, "slack", "--token-stdin", token=SLACK_TOKEN)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith("Connected as hermes in Acme.")
        assert "lacks scopes: channels:history, files:read" in ran.out
        assert "these events do not arrive: message.channels" in ran.out
        assert "apps.connections.open" in slack.calls
        stored = (hermes.home / ".env").read_text()
        assert f"SLACK_BOT_TOKEN={SLACK_TOKEN}" in stored
        assert f"SLACK_APP_TOKEN={APP_TOKEN}" in stored

    async def test_two_workspaces_are_both_named(
        self, hermes: HermesCli, slack: SlackServer
    ) -> None:
        slack.slack.install(SECOND_TOKEN, "Globex")
        ran = await run(hermes, "slack", "--token-stdin", token=f"{SLACK_TOKEN},{SECOND_TOKEN}")
        assert ran.out.startswith("Connected as hermes in Acme, hermes in Globex.")
        assert "scopes" not in ran.out

    async def test_wrong_app_token_is_named_and_nothing_stored(self, hermes: HermesCli) -> None:
        hermes.env["SLACK_APP_TOKEN"] = "xapp-wrong"
        ran = await run(hermes, "slack", "--token-stdin", token=SLACK_TOKEN)
        assert ran.code == 1
        assert "Slack does not accept the app token" in ran.err
        swapped = await run(hermes, "slack", "--token-stdin", token=APP_TOKEN)
        assert "The bot token must begin with xoxb-" in swapped.err
        assert not (hermes.home / ".env").exists()

    async def test_manifest_requests_the_scopes_and_events_of_the_app(
        self, hermes: HermesCli
    ) -> None:
        ran = await anyio.to_thread.run_sync(partial(hermes, "slack", "manifest"))
        manifest = json.loads(ran.out)
        assert set(manifest["oauth_config"]["scopes"]["bot"]) == SCOPES
        assert manifest["settings"]["socket_mode_enabled"]
        commands = [one["command"] for one in manifest["features"]["slash_commands"]]
        assert commands[0] == "/hermes"
        assert len(set(commands)) == len(commands) <= 50
        assert all(len(one) <= 32 for one in commands)


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
        child.sendline("telegram")
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


async def test_broken_settings_are_reported_before_the_first_question(hermes: HermesCli) -> None:
    hermes.configure("platforms: [")

    def talk() -> tuple[str | None, int | None]:
        child = terminal(hermes, "irc")
        child.expect(pexpect.EOF)
        return child.before, exit_status(child)

    shown, code = await anyio.to_thread.run_sync(talk)
    assert code == 78
    assert "config.yaml, line" in (shown or "")
    assert "Server [" not in (shown or "")


def terminal(hermes: HermesCli, *words: str) -> "pexpect.spawn[str]":
    return pexpect.spawn(
        HERMES_PROGRAM,
        ["gateway", "setup", *words],
        env={**hermes.env, "TERM": "dumb"},
        timeout=TEST_TIMEOUT,
        encoding="utf-8",
    )


async def test_second_run_keeps_the_token_and_a_wrong_user_id_is_asked_again(
    hermes: HermesCli,
) -> None:
    def talk() -> None:
        for kept in (False, True):
            child = terminal(hermes)
            child.expect(r"Telegram \(set up\)" if kept else "Telegram\r")
            child.expect("Number or name")
            child.sendline("pigeon")
            child.expect("pigeon is not in the list")
            child.sendline("telegram")
            child.expect("Enter keeps the last one" if kept else r"input is hidden\)")
            child.sendline("<")
            child.expect("Which chat app")
            child.sendline("1")
            child.expect("Token for Telegram")
            child.sendline("" if kept else TOKEN)
            child.expect("Connected as @hermes_test_bot")
            if not kept:
                child.expect("User ids")
                child.sendline("ann")
                child.expect("ann is not a user id")
                child.sendline("1001")
            child.expect("Allowed: 1001")
            child.expect(pexpect.EOF)
            assert exit_status(child) == 0

    await anyio.to_thread.run_sync(talk)
    assert (hermes.home / ".env").read_text().count(TOKEN) == 1


@pytest.fixture
async def mailbox(hermes: HermesCli) -> AsyncGenerator[HermesCli]:
    """Settings for a mailbox on this machine, with one mail in it."""
    async with emulator_host() as host, serve_smtp(SmtpState()) as smtp_port:
        await host.deliver(new_mail("hello"))
        ports = f"imap_port: {host.port}, smtp_port: {smtp_port}"
        hermes.configure(
            "platforms:\n  email:\n    extra: "
            f"{{{ports}, imap_security: none, smtp_security: none}}\n"
        )
        yield hermes


async def test_mailbox_is_checked_on_both_servers_and_stored(mailbox: HermesCli) -> None:
    missing = await run(mailbox, "email", "--token-stdin", token=PASSWORD)
    assert (missing.code, "EMAIL_ADDRESS is not set" in missing.err) == (2, True)
    hosts = "EMAIL_IMAP_HOST=127.0.0.1\nEMAIL_SMTP_HOST=127.0.0.1\n"
    (mailbox.home / ".env").write_text(f"EMAIL_ADDRESS={AGENT}\n{hosts}")
    refused = await run(mailbox, "email", "--token-stdin", token="wrong")
    assert "does not accept the login" in refused.err
    assert "EMAIL_PASSWORD" not in (mailbox.home / ".env").read_text()
    ran = await run(
        mailbox, "email", "--token-stdin", "--allow", "Ann@people.example", token=PASSWORD
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Connected as {AGENT}. The password is stored in")
    assert "EMAIL_AUTHSERV_ID=mx.agent.example is stored" in ran.out
    stored = (mailbox.home / ".env").read_text()
    assert "EMAIL_AUTHSERV_ID=mx.agent.example\n" in stored
    assert f"EMAIL_PASSWORD={PASSWORD}" in stored
    assert "EMAIL_ALLOWED_USERS=Ann@people.example" in stored


@pytest.mark.slow
async def test_mailbox_questions_at_a_terminal(mailbox: HermesCli) -> None:
    def talk() -> int | None:
        child = pexpect.spawn(
            HERMES_PROGRAM,
            ["gateway", "setup", "email"],
            env={**mailbox.env, "TERM": "dumb"},
            timeout=TEST_TIMEOUT,
            encoding="utf-8",
        )
        child.expect("The agent's address: ")
        child.sendline("agent.example")
        child.expect("Expected an address")
        child.sendline(AGENT)
        child.expect(r"IMAP server \[imap.agent.example\]: ")
        child.sendline(AGENT)
        child.expect("Expected the name of a server")
        child.sendline("127.0.0.1")
        child.expect(r"SMTP server \[smtp.agent.example\]: ")
        child.sendline("127.0.0.1")
        child.expect("Password for E-mail")
        child.sendline(PASSWORD)
        child.expect(f"Connected as {AGENT}")
        child.expect("User ids")
        child.sendline("ann@people.example")
        child.expect("Allowed: ann@people.example")
        child.expect(pexpect.EOF)
        return exit_status(child)

    assert await anyio.to_thread.run_sync(talk) == 0
    assert f"EMAIL_ADDRESS={AGENT}" in (mailbox.home / ".env").read_text()


@pytest.mark.slow
async def test_wrong_server_can_be_corrected_and_a_stored_password_goes_to_no_other(
    mailbox: HermesCli,
) -> None:
    hosts = "EMAIL_IMAP_HOST=127.0.0.1\nEMAIL_SMTP_HOST=127.0.0.1\n"
    before = f"EMAIL_ADDRESS={AGENT}\n{hosts}EMAIL_PASSWORD={PASSWORD}\n"
    (mailbox.home / ".env").write_text(before)

    def talk() -> None:
        child = terminal(mailbox, "email")
        child.expect("The agent's address")
        child.sendline("<")
        child.expect("This is the first question")
        child.sendline("")
        child.expect("IMAP server")
        child.sendline("localhost")
        child.expect("SMTP server")
        child.sendline("")
        child.expect(r"input is hidden\)")
        child.sendline("wrong")
        child.expect("does not accept the login")
        child.expect("The agent's address")
        child.sendline("")
        child.expect(r"IMAP server \[localhost\]")
        child.sendline("127.0.0.1")
        child.expect("SMTP server")
        child.sendintr()
        child.expect("Stopped. Nothing is stored")
        child.expect(pexpect.EOF)
        child.close()

    await anyio.to_thread.run_sync(talk)
    assert (mailbox.home / ".env").read_text() == before


@pytest.mark.slow
async def test_network_without_password_and_channels(hermes: HermesCli) -> None:
    def talk(port: int) -> int | None:
        child = pexpect.spawn(
            HERMES_PROGRAM,
            ["gateway", "setup", "irc"],
            env={**hermes.env, "TERM": "dumb"},
            timeout=TEST_TIMEOUT,
            encoding="utf-8",
        )
        child.expect(r"Server \[irc.libera.chat\]: ")
        child.sendline("127.0.0.1:port")
        child.expect("Expected HOST or HOST:PORT")
        child.sendline(f"irc://127.0.0.1:{port}")
        child.expect(r"The agent's nickname \[hermes-bot\]: ")
        child.sendline("her mes")
        child.expect("Expected a nickname without spaces")
        child.sendline(NICK)
        child.expect(r"none \[-\]: ")
        child.sendline("room")
        child.expect("Expected channels, such as #one,#two")
        child.sendline("")
        child.expect("Enter if there is none")
        child.sendline("")
        child.expect(f"Connected as {NICK} on Emulated. The answers are stored")
        child.expect("not logged in to an account")
        child.expect("User ids")
        child.sendline("-")
        child.expect("Start it: hermes gateway start\r")
        child.expect(pexpect.EOF)
        return exit_status(child)

    async with serve_irc(EmulatedIrc({})) as network:
        assert await anyio.to_thread.run_sync(talk, network.port) == 0
    stored = (hermes.home / ".env").read_text()
    assert f"IRC_NICKNAME={NICK}" in stored
    assert "IRC_CHANNEL" not in stored
    assert "PASSWORD" not in stored


@pytest.mark.slow
async def test_key_of_a_room_is_not_shown_and_kept_only_for_its_server(hermes: HermesCli) -> None:
    def talk() -> None:
        for server, shown in (("", r"#closed \[redacted\]"), ("localhost", "-")):
            child = pexpect.spawn(
                HERMES_PROGRAM,
                ["gateway", "setup", "irc"],
                env={**hermes.env, "TERM": "dumb"},
                timeout=TEST_TIMEOUT,
                encoding="utf-8",
            )
            child.expect(r"Server \[127.0.0.1\]: ")
            child.sendline(server)
            child.expect("nickname")
            child.sendline("")
            child.expect(rf"none \[{shown}\]: ")
            child.sendline("")
            child.expect("Enter if there is none")
            child.sendline("")
            child.expect("The answers are stored")
            child.expect("User ids")
            child.sendline("-")
            child.expect(pexpect.EOF)
            assert exit_status(child) == 0
            assert ("room-key" in (hermes.home / ".env").read_text()) == (not server)

    async with serve_irc(EmulatedIrc({})) as network:
        hermes.configure(
            f"platforms:\n  irc:\n    extra: {{port: {network.port}, use_tls: false}}\n"
        )
        (hermes.home / ".env").write_text(
            f"IRC_SERVER=127.0.0.1\nIRC_NICKNAME={NICK}\nIRC_CHANNEL='#closed room-key'\n"
        )
        await anyio.to_thread.run_sync(talk)


async def test_qq_app_is_checked_and_stored(tmp_path: Path) -> None:
    async with serve_qq(EmulatedQq()) as server:
        hermes = HermesCli(tmp_path, "http://127.0.0.1:1")
        hermes.configure(json.dumps({"platforms": {"qqbot": {"extra": addresses(server.url)}}}))
        (hermes.home / ".env").write_text(f"QQ_APP_ID={APP_ID}\n")
        wrong = await run(hermes, "qqbot", "--token-stdin", token="wr0ng")
        assert wrong.code != 0
        assert "does not accept the app id and secret" in wrong.err
        ran = await run(hermes, "qqbot", "--token-stdin", "--allow", ANN, token=SECRET)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Connected as hermes.")
    assert "5 minutes" in ran.out
    stored = (hermes.home / ".env").read_text()
    assert f"QQ_CLIENT_SECRET={SECRET}" in stored
    assert f"QQ_ALLOWED_USERS={ANN}" in stored
