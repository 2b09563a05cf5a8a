"""Check a token of Home Assistant for `hermes gateway setup`."""

from collections.abc import Mapping

from hermes.channels.account import BotToken
from hermes.channels.homeassistant import MANIFEST, HomeAssistantOptions
from hermes.channels.homeassistant.channel import LABEL
from hermes.channels.homeassistant.rest_api import RestApi
from hermes.channels.http_client import open_http_client
from hermes.channels.proxies import ProxySettings
from hermes.config.sections import FreeTable
from hermes.ports.channel import AccountCheck
from hermes.ports.channel_options import read_options

NOTHING = (
    "Nothing is watched yet: list kinds of devices in platforms.homeassistant.extra.watch_domains, "
    "such as [light, binary_sensor], or single ones in watch_entities."
)


async def check_account(token: str, extra: FreeTable, env: Mapping[str, str]) -> AccountCheck:
    """Ask Home Assistant who it is. Raises `HermesError` if it does not accept the token."""
    options = read_options(HomeAssistantOptions, MANIFEST.name, extra, env, MANIFEST.variables)
    settings = ProxySettings(options.proxy_url, "HASS_PROXY", env)
    async with open_http_client(LABEL, settings) as http:
        home = await RestApi(http, options.url, BotToken(lambda: token)).configuration()
    watches = options.watch_all or options.watch_domains or options.watch_entities
    return AccountCheck(
        account=f"{home.location_name or options.url}, version {home.version}",
        notes=() if watches else (NOTHING,),
    )
