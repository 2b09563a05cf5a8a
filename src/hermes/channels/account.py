"""Read a channel account's options and token, and check its addresses."""

import re
from collections.abc import Callable, Collection
from typing import TypeVar

from msgspec import Struct

from hermes.ports.channel import ChannelDeps, ChannelManifest, NotSent, Offline
from hermes.ports.channel_options import read_options
from hermes.schema.errors import ConfigError
from hermes.schema.scope import Address

T = TypeVar("T", bound=Struct)


class BadToken(Offline):
    """The platform does not accept the token."""

    code = "bad_token"


class BotToken:
    """The token that `read` last returned; it can be replaced while the program runs."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read
        self.value = read()

    def reload(self) -> None:
        self.value = self._read()


def bot_token(
    deps: ChannelDeps, manifest: ChannelManifest, pattern: re.Pattern[str], source: str
) -> str:
    """Return the account's current token: the first group of `pattern`.

    Raises `ConfigError` if there is none; `source` says where to get one.
    """
    # The environment variable belongs to the first account.
    variable = "" if deps.account else deps.current_env().get(manifest.enabled_by[0], "")
    token = (variable or deps.settings.token).strip()
    if (found := pattern.fullmatch(token)) is None:
        raise ConfigError(
            f"{deps.name} has no valid bot token." if token else f"{deps.name} has no bot token.",
            hint=f"Get one {source} and set it with: hermes gateway setup {manifest.name}",
        )
    return found[1]


def account_options(
    kind: type[T], deps: ChannelDeps, manifest: ChannelManifest, *, own: Collection[str] = ()
) -> T:
    """Return the current options. Raises `ConfigError` for a value of the wrong type.

    The variables of the options in `own`, such as an address or a list of users, belong to the
    first account. For further accounts, variables never override the settings.
    """
    not_for_account = {*own, *deps.settings.extra} if deps.account else frozenset[str]()
    variables = {
        name: variable
        for name, variable in manifest.variables.items()
        if name not in not_for_account
    }
    return read_options(kind, deps.name, deps.settings.extra, deps.current_env(), variables)


def require_options(
    options: Struct, deps: ChannelDeps, manifest: ChannelManifest, names: Collection[str]
) -> None:
    """Raise `ConfigError` if one of these options is not set."""
    missing = [name for name in names if not getattr(options, name)]
    if missing:
        listed = ", ".join(
            f"{manifest.variables[name]} ({name})" if name in manifest.variables else name
            for name in missing
        )
        raise ConfigError(
            f"{deps.name} needs {listed}.",
            hint=f"Set it with: hermes gateway setup {manifest.name}",
        )


def check_address(to: Address, name: str) -> None:
    """Raise `NotSent` for an address of another channel."""
    if to.channel != name:
        raise NotSent(f"Cannot send to {to.channel}: this channel is {name}.")
