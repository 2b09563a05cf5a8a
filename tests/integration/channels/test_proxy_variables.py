"""Every channel uses the proxies of the environment, and none for hosts in NO_PROXY."""

from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from hermes.channels import MANIFESTS
from hermes.channels.http_client import open_http_client
from hermes.channels.proxies import ProxySettings, open_proxy, socket_proxy
from hermes.channels.websocket import open_websocket
from hermes.ports.channel import Channel, ChannelFactory
from hermes.schema.errors import ConfigError, HermesError
from hermes.testing.clock import FakeClock
from hermes.testing.fake_openai.server import listen
from support.channel_deps import new_deps
from support.http_proxy import http_proxy
from support.polling import wait_until
from support.ports import unused_port
from support.socks import socks_proxy

HOST = "platform.invalid"
ACCOUNTS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "telegram": ("TELEGRAM_BOT_TOKEN", {"base_url": "{url}"}, {"": f"4242:AA{'x' * 33}"}),
    "discord": ("DISCORD_BOT_TOKEN", {"base_url": "{url}"},
                {"": f"{'x' * 24}.{'x' * 6}.{'x' * 38}"}),
    "slack": ("SLACK_BOT_TOKEN", {"base_url": "{url}"},
              {"": "xoxb-1-2-three", "SLACK_APP_TOKEN": "xapp-1-2-three"}),
    "matrix": ("MATRIX_PASSWORD", {"homeserver": "{url}", "user_id": "@a:b.example"}, {"": "pass"}),
    "mattermost": ("MATTERMOST_TOKEN", {"url": "{url}"}, {"": "x" * 26}),
    "email": ("EMAIL_PASSWORD", {"address": "a@b.example", "imap_host": "{host}",
                                 "smtp_host": "{host}"}, {"": "pass"}),
    "irc": ("IRC_NICKSERV_PASSWORD", {"server": "{host}", "nickname": "bot"}, {"": "pass"}),
    "xmpp": ("XMPP_PASSWORD", {"jid": "a@b.example", "host": "{host}"}, {"": "pass"}),
    "signal": ("SIGNAL_ACCOUNT", {"http_url": "{url}"}, {"": "+15551230000"}),
    "whatsapp_cloud": ("WHATSAPP_CLOUD_ACCESS_TOKEN", {
        "base_url": "{url}", "phone_number_id": "1", "app_secret": "s", "verify_token": "v",
        "webhook_host": "127.0.0.1", "webhook_port": "0",
    }, {"": "token"}),
    "sms": ("TWILIO_AUTH_TOKEN", {
        "base_url": "{url}", "account_sid": f"AC{'1' * 32}", "phone_number": "+15551234567",
        "webhook_url": "https://a.example/sms", "webhook_host": "127.0.0.1", "webhook_port": "0",
    }, {"": "token"}),
    "homeassistant": ("HASS_TOKEN", {"url": "{url}"}, {"": "token"}),
    "qqbot": ("QQ_CLIENT_SECRET", {"base_url": "{url}", "token_url": "{url}", "app_id": "1"},
              {"": "secret"}),
}  # fmt: skip
"""For each platform: the variable of its token, its options, and variables ("" is the token)."""


def options_of(name: str, host: str, port: int = 9) -> dict[str, object]:
    arguments = ACCOUNTS[name][1].items()
    options = {key: text.format(url=f"http://{host}:{port}", host=host) for key, text in arguments}
    return {**options, "imap_port": port, "smtp_port": port, "port": port}


async def check(name: str, extra: Mapping[str, object], env: Mapping[str, str]) -> None:
    setup = MANIFESTS[name].setup
    assert setup is not None
    module, _, function = setup.check.partition(":")
    variables = {variable: value for variable, value in ACCOUNTS[name][2].items() if variable}
    token = ACCOUNTS[name][2][""]
    with anyio.fail_after(20), pytest.raises(HermesError):
        await getattr(import_module(module), function)(token, extra, {**variables, **env})


def test_all_channels_are_tested() -> None:
    assert ACCOUNTS.keys() == {name for name, one in MANIFESTS.items() if one.setup is not None}


@pytest.mark.parametrize("name", ACCOUNTS)
async def test_setup_uses_the_proxy_of_the_environment(name: str) -> None:
    async with socks_proxy() as proxy:
        proxy.refuse = True
        await check(name, options_of(name, HOST), {"ALL_PROXY": proxy.url})
    assert set(proxy.hosts) == {HOST}


@pytest.mark.parametrize("name", ACCOUNTS)
async def test_setup_reaches_hosts_in_no_proxy_directly(name: str) -> None:
    extra = {**options_of(name, "127.0.0.1", unused_port())}
    async with socks_proxy() as proxy:
        extra["proxy_url"] = proxy.url
        await check(name, extra, {"NO_PROXY": "127.0.0.0/8"})
    assert proxy.hosts == []


@pytest.mark.parametrize("name", ACCOUNTS)
async def test_channel_uses_the_proxy_of_the_environment(name: str, tmp_path: Path) -> None:
    async def run(channel: Channel) -> None:
        with suppress(HermesError):
            await channel.run(lambda update: pytest.fail(str(update)))

    variable, _, variables = ACCOUNTS[name]
    module, _, function = MANIFESTS[name].factory.partition(":")
    async with socks_proxy() as proxy:
        proxy.refuse = True
        env = {key or variable: value for key, value in variables.items()}
        env["all_proxy"] = proxy.url
        extra = options_of(name, HOST)
        deps = new_deps(name, tmp_path, extra=extra, env=env, clock=FakeClock())
        open_channel: ChannelFactory = getattr(import_module(module), function)
        async with open_channel(deps) as channel, anyio.create_task_group() as group:
            group.start_soon(run, channel)
            await wait_until(lambda: bool(proxy.hosts))
            group.cancel_scope.cancel()
    assert set(proxy.hosts) == {HOST}


async def test_websocket_and_requests_of_one_client_choose_the_proxy_by_host() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        if not socket.can_prepare(request):
            return web.Response(text="{}")
        await socket.prepare(request)
        await socket.send_str("7")
        return socket

    app = web.Application()
    app.router.add_get("/", handle)
    async with listen(web.AppRunner(app)) as url, socks_proxy() as proxy:
        env = {"HTTP_PROXY": proxy.url, "NO_PROXY": "localhost"}
        there = url.replace("127.0.0.1", HOST)
        async with open_http_client("X", ProxySettings(env=env)) as http:
            for address in (there, url, url.replace("127.0.0.1", "localhost")):
                assert (await http.call("GET", address)).status == 200
            ws = there.replace("http", "ws", 1)
            clock = FakeClock()
            async with open_websocket(
                "X", ws, proxy=http.proxy, clock=clock, on_data=lambda: None
            ) as socket:
                assert await socket.receive(int) == 7
    assert proxy.hosts == [HOST, HOST]


async def test_https_goes_through_an_http_proxy() -> None:
    async with listen(web.AppRunner(web.Application())) as url, http_proxy() as proxy:
        env = {"https_proxy": proxy.url, "ALL_PROXY": "socks5://127.0.0.1:9"}
        async with open_http_client("X", ProxySettings(env=env)) as http:
            with pytest.raises(HermesError):  # the server has no certificate
                await http.call("GET", url.replace("http://127.0.0.1", f"https://{HOST}"))
    assert proxy.hosts == [HOST]


def test_variable_is_chosen_by_scheme_and_small_letters_come_first() -> None:
    env = {"http_proxy": "http://a", "HTTP_PROXY": "http://b", "HTTPS_PROXY": "c:3128",
           "ALL_PROXY": "socks5://d"}  # fmt: skip
    settings = ProxySettings(env=env)
    found = {scheme: settings.proxy_for(HOST, scheme) for scheme in ("http", "ws", "https", "wss")}
    assert found == {
        "http": "http://a", "ws": "http://a", "https": "http://c:3128", "wss": "http://c:3128"
    }  # fmt: skip
    assert settings.proxy_for(HOST) == "socks5://d"
    for own in ("localhost", "127.0.0.1", "::1"):
        assert settings.proxy_for(own, "http") == ""
    assert ProxySettings("http://own", env=env).proxy_for("localhost", "https") == "http://own"


def test_networks_and_wildcards_in_no_proxy() -> None:
    env = {"ALL_PROXY": "http://p", "NO_PROXY": "10.0.0.0/8,*.example.org,fd00::/8"}
    settings = ProxySettings(env=env)
    for host in ("10.1.2.3", "a.example.org", "fd00::1"):
        assert settings.proxy_for(host) == ""
    for host in ("11.1.2.3", "example.net", "fe00::1"):
        assert settings.proxy_for(host) == "http://p"


def test_unusable_proxy_of_the_environment_is_named() -> None:
    settings = ProxySettings(env={"all_proxy": "ftp://ann:secret@proxy"})
    for opens in (lambda: open_proxy("X", settings), lambda: socket_proxy("X", HOST, settings)):
        with pytest.raises(ConfigError) as caught:
            opens()
        assert "all_proxy" in caught.value.hint
        assert "secret" not in str(caught.value) + caught.value.hint
