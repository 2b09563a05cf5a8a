"""Set up a channel: ask the platform about its credentials, then store them."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from hermes.app.chat_settings import ChatSettings
from hermes.config.editor import change_settings, set_variable, unset_variable
from hermes.config.home import Home
from hermes.config.platform_blocks import other_places
from hermes.config.schema import Config
from hermes.ports.channel import AccountCheck, ChannelManifest, ChannelSetup, CheckAccount


async def check_account(
    manifest: ChannelManifest,
    setup: ChannelSetup,
    config: Config,
    env: Mapping[str, str],
    token: str,
) -> AccountCheck:
    """Return whose account it is; `env` contains the answers. Raises `HermesError`."""
    module, _, name = setup.check.partition(":")
    check = cast("CheckAccount", getattr(import_module(module), name))
    return await check(token, ChatSettings(config).platform(manifest.name).extra, env)


def store_account(
    home: Home, setup: ChannelSetup, token: str, answers: Mapping[str, str], found: AccountCheck
) -> None:
    """Store the answers; an empty one is removed."""
    for name, value in {**answers, **found.variables, setup.variable: token}.items():
        if value:
            set_variable(home, name, value)
        else:
            unset_variable(home, name)


def turn_on(home: Home, config: Config, platform: str) -> bool:
    """Enable a platform if the settings turn it off; returns whether they did."""
    if ChatSettings(config).platform(platform).enabled is not False:
        return False
    elsewhere = dict.fromkeys(other_places(platform, "enabled"))
    changes = {f"platforms.{platform}.enabled": "true", **elsewhere}
    change_settings(home, {}, lambda config: changes)
    return True
