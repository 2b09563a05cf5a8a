"""Serve emulators, Synapse and prosody for all chat apps, in a process of their own.

usage: python -m bench.served_apps

It prints one line of JSON, the settings and variables that enable the apps, and serves until its
stdin is closed. A signal to its process group reaches all servers.
"""

import logging
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, field

from emulators import homeassistant, mattermost, signal, sms, whatsapp_cloud
from emulators.discord.server import serve_discord
from emulators.discord.state import EmulatedDiscord
from emulators.homeassistant.server import EmulatedHome, serve_home
from emulators.irc.server import serve_irc
from emulators.irc.state import EmulatedIrc
from emulators.mail.imap_server import ImapEmulator, serve_imap
from emulators.mail.mailbox import EmulatedMailbox
from emulators.mattermost.server import serve_mattermost
from emulators.mattermost.state import EmulatedMattermost
from emulators.qqbot.check import addresses
from emulators.qqbot.server import serve_qq
from emulators.qqbot.state import APP_ID, SECRET, EmulatedQq
from emulators.signal.server import serve_signal
from emulators.signal.state import EmulatedSignal
from emulators.slack.server import serve_slack
from emulators.slack.state import EmulatedSlack
from emulators.sms.server import EmulatedTwilio, serve_twilio
from emulators.telegram.server import serve_telegram
from emulators.telegram.state import EmulatedTelegram
from emulators.whatsapp_cloud.server import EmulatedWhatsApp, serve_whatsapp
from support.matrix import PASSWORD as MATRIX_PASSWORD
from support.matrix import new_user
from support.synapse import start, stop, wait_until_ready
from support.xmpp import PASSWORD as XMPP_PASSWORD
from support.xmpp import run_prosody

MAIL = "agent@example.org"


class Apps(Struct):
    """Settings and variables that enable the apps."""

    extra: dict[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    variables: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, name: str, variables: Mapping[str, str], **extra: object) -> None:
        self.extra[name] = extra
        self.variables.update(variables)


async def serve() -> None:
    """Serve until stdin is closed."""
    # Connections that break while the servers are stopped are not errors.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    apps = Apps()
    async with AsyncExitStack() as stack:
        await _add_clients(apps, stack)
        await _add_webhooks(apps, stack)
        await run_sync(_add_servers, apps, stack)
        sys.stdout.write(msgspec.json.encode(apps).decode() + "\n")
        sys.stdout.flush()
        await run_sync(sys.stdin.read, abandon_on_cancel=True)


async def _add_clients(apps: Apps, stack: AsyncExitStack) -> None:
    enter = stack.enter_async_context
    telegram, discord, slack = EmulatedTelegram(), EmulatedDiscord(), EmulatedSlack()
    telegram.add_bot("4242:AAtoken_of-the-emulator")
    discord.add_bot("emulated.bot.token")
    slack.app_tokens.add("xapp-1-emulated")
    slack.install("xoxb-emulated-1")
    tokens = {"SLACK_BOT_TOKEN": "xoxb-emulated-1", "SLACK_APP_TOKEN": "xapp-1-emulated"}
    url = (await enter(serve_telegram(telegram))).url
    apps.add("telegram", {"TELEGRAM_BOT_TOKEN": "4242:AAtoken_of-the-emulator"}, base_url=url)
    url = (await enter(serve_discord(discord))).api_url
    apps.add("discord", {"DISCORD_BOT_TOKEN": "emulated.bot.token"}, base_url=url)
    apps.add("slack", tokens, base_url=(await enter(serve_slack(slack))).api_url)
    url = (await enter(serve_mattermost(EmulatedMattermost()))).url
    token = mattermost.state.TOKEN
    apps.add("mattermost", {"MATTERMOST_URL": url, "MATTERMOST_TOKEN": token})
    url = (await enter(serve_signal(EmulatedSignal()))).url
    apps.add("signal", {"SIGNAL_HTTP_URL": url, "SIGNAL_ACCOUNT": signal.state.ACCOUNT})
    url = (await enter(serve_qq(EmulatedQq()))).url
    secrets = {"QQ_APP_ID": APP_ID, "QQ_CLIENT_SECRET": SECRET}
    apps.add("qqbot", secrets, **addresses(url))
    url = (await enter(serve_home(EmulatedHome()))).url
    token = homeassistant.server.TOKEN
    apps.add("homeassistant", {"HASS_URL": url, "HASS_TOKEN": token}, watch_all=True)
    port = (await enter(serve_irc(EmulatedIrc({})))).port
    apps.add("irc", {}, server="127.0.0.1", port=port, use_tls=False, nickname="hermes")
    imap = await enter(serve_imap(ImapEmulator([EmulatedMailbox(MAIL, "password")])))
    login = {"EMAIL_ADDRESS": MAIL, "EMAIL_PASSWORD": "password"}
    local = {"imap_host": "127.0.0.1", "imap_security": "none", "smtp_security": "none"}
    apps.add("email", login, **local, imap_port=imap.port, smtp_host="127.0.0.1", smtp_port=25)


def _add_servers(apps: Apps, stack: AsyncExitStack) -> None:
    """Real servers, for the apps whose packages are large."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="synapse-"))
    synapse = start(Path(folder) / "synapse")
    stack.callback(stop, synapse)
    server = wait_until_ready(synapse)
    login = {"MATRIX_HOMESERVER": server.url, "MATRIX_USER_ID": new_user(server, "agent")}
    apps.add("matrix", {**login, "MATRIX_PASSWORD": MATRIX_PASSWORD})
    prosody = stack.enter_context(run_prosody())
    account = {"jid": prosody.new_account(), "password": XMPP_PASSWORD}
    apps.add("xmpp", {}, **account, host="127.0.0.1", port=prosody.port, use_tls=False)


async def _add_webhooks(apps: Apps, stack: AsyncExitStack) -> None:
    one, two = sms.server, whatsapp_cloud.server
    url = (await stack.enter_async_context(serve_twilio(EmulatedTwilio()))).url
    variables = {
        "TWILIO_ACCOUNT_SID": one.ACCOUNT,
        "TWILIO_AUTH_TOKEN": one.TOKEN,
        "TWILIO_PHONE_NUMBER": one.NUMBER,
        "SMS_WEBHOOK_URL": "https://sms.example.com/hook",
        "SMS_WEBHOOK_PORT": "0",
    }
    apps.add("sms", variables, base_url=url)
    url = (await stack.enter_async_context(serve_whatsapp(EmulatedWhatsApp()))).url
    variables = {
        "WHATSAPP_CLOUD_PHONE_NUMBER_ID": two.NUMBER_ID,
        "WHATSAPP_CLOUD_ACCESS_TOKEN": two.TOKEN,
        "WHATSAPP_CLOUD_APP_SECRET": two.SECRET,
        "WHATSAPP_CLOUD_VERIFY_TOKEN": two.VERIFY,
        "WHATSAPP_CLOUD_WEBHOOK_HOST": "127.0.0.1",
        "WHATSAPP_CLOUD_WEBHOOK_PORT": "0",
    }
    apps.add("whatsapp_cloud", variables, base_url=url)


if __name__ == "__main__":
    anyio.run(serve)
