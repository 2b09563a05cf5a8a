"""Set up a channel: ask the platform about its credentials, then store them."""

from collections.abc import Mapping
from importlib import import_module
from typing import cast

from hermes.app.chat_settings import ChatSettings
from hermes.config.editor import set_variable
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.ports.channel import AccountCheck, ChannelManifest, ChannelSetup, CheckAccount


async def check_account(
    manifest: ChannelManifest,
    setup: ChannelSetup,
    config: Config,
    env: Mapping[str, str],
    token: str,
) -> AccountCheck:
    """Whose account it is. `env` contains the answers. Raises `HermesError`."""
    module, _, name = setup.check.partition(":")
    check = cast("CheckAccount", getattr(import_module(module), name))
    return await check(token, ChatSettings(config).platform(manifest.name).extra, env)


def store_account(
    home: Home, setup: ChannelSetup, token: str, answers: Mapping[str, str], found: AccountCheck
) -> None:
    secret = {setup.variable: token} if token else {}
    for name, value in {**answers, **found.variables, **secret}.items():
        set_variable(home, name, value)
