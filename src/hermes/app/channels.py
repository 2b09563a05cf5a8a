"""Open the channels that a profile's settings enable."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TypeVar, cast

from hermes.app.build import App
from hermes.channels import MANIFESTS
from hermes.commands.registry import standard_commands
from hermes.commands.surface import Surface
from hermes.config.env import profile_env
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform
from hermes.gateway.platform_settings import is_true, platform_variable
from hermes.kit.installation import extra_requirements, install_command
from hermes.plugins.registry import SharedPlugins, open_shared_plugins
from hermes.ports.channel import Channel, ChannelDeps, ChannelFactory, ChannelManifest
from hermes.schema.errors import ConfigError
from hermes.schema.scope import platform_of

T = TypeVar("T")

_ACCOUNT = re.compile(r"[a-z0-9_-]{1,32}")
SURFACES = frozenset({"api_server"})
"""Listed among the platforms, but served by the process itself."""


class ProcessResources:
    """Resources shared by the profiles of a process, and which profile uses which credential."""

    def __init__(self, stack: AsyncExitStack, plugins: SharedPlugins) -> None:
        self.plugins = plugins
        self._stack = stack
        self._made: dict[str, object] = {}
        self._users: dict[str, tuple[str, str]] = {}

    async def get_or_open(self, name: str, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        if name not in self._made:
            self._made[name] = await self._stack.enter_async_context(make())
        return cast("T", self._made[name])

    def claim(self, channel: str, credential: str, profile: str) -> None:
        """Reject a second listener on one account: each would get only part of the messages."""
        platform = platform_of(channel)
        account = f"{platform}:{hashlib.sha256(credential.encode()).hexdigest()}"
        other, first = self._users.setdefault(account, (profile, channel))
        if other == profile and first != channel:
            raise ConfigError(
                f"{first} and {channel} use the same account.",
                hint="Give each account its own credentials, or remove one of them.",
            )
        if other != profile:
            raise ConfigError(
                f"The profiles {other} and {profile} use the same {platform} account.",
                hint="Give each profile its own account, or route chats between profiles with "
                "gateway.profile_routes.",
            )


@asynccontextmanager
async def open_process_resources() -> AsyncGenerator[ProcessResources]:
    async with open_shared_plugins() as plugins, AsyncExitStack() as stack:
        yield ProcessResources(stack, plugins)


class ConfiguredChannels:
    """The channels enabled by a profile's settings and environment, one per account."""

    def __init__(self, app: App, more: Mapping[str, ChannelManifest] | None = None) -> None:
        self._app = app
        self._known = {**MANIFESTS, **(more or {})}

    @property
    def names(self) -> list[str]:
        """Channels that can be opened."""
        return [
            channel
            for name in self._enabled()
            if name in self._known
            for channel in self._accounts(self._known[name])
        ]

    @property
    def missing(self) -> list[str]:
        """Enabled platforms that are not installed."""
        return [name for name in self._enabled() if name not in self._known]

    async def open(self, name: str, stack: AsyncExitStack, shared: ProcessResources) -> Channel:
        """Raises `ConfigError` for wrong settings, a missing package or a timeout."""
        app, manifest = self._app, self._known[platform_of(name)]
        settings = app.chats.platform(name)
        account = _account_of(name)
        # Variables belong to the platform's first account.
        env: Mapping[str, str] = {} if account else app.env
        if credential := _credential(manifest, settings, env):
            shared.claim(name, credential, app.home.profile)
        from hermes.app.gateway import build_access  # noqa: PLC0415 - only a gateway opens channels

        deps = ChannelDeps(
            name=name,
            profile=app.home.profile,
            home=app.home.path,
            settings=settings,
            env=app.env,
            current_env=partial(profile_env, app.home.dotenv, app.env),
            clock=app.clock,
            shared=shared,
            blobs=app.blobs,
            max_file=app.config.gateway.max_inbound_media_bytes,
            admits=build_access(app, [name], multiplexed=False).admits,
            commands=_chat_commands() if manifest.caps.native_commands else (),
            account=account,
        )
        limit = app.config.gateway.platform_connect_timeout
        try:
            # Not an anyio scope, because tasks that the channel opens outlive it.
            async with asyncio.timeout(limit or None):
                return await stack.enter_async_context(_load_factory(manifest)(deps))
        except TimeoutError as error:
            raise ConfigError(
                f"Could not connect within {limit:g} seconds.",
                hint="Raise gateway.platform_connect_timeout, or restart the gateway to try again.",
            ) from error

    def _accounts(self, manifest: ChannelManifest) -> list[str]:
        """Return the channels of a platform.

        With named accounts, the platform's own settings are an account only if they have
        credentials.
        """
        settings = self._app.config.platforms.get(manifest.name) or Platform()
        named = [
            f"{manifest.name}/{name}" for name, one in settings.accounts.items() if one.enabled
        ]
        own = settings.token or settings.api_key or _first_variable(manifest, self._app.env)
        own = own or _credential(manifest, settings, {})
        return [manifest.name, *named] if own.strip() or not settings.accounts else named

    def _enabled(self) -> list[str]:
        return enabled_platforms(self._app.config, self._app.env, self._known)


def enabled_platforms(
    config: Config, env: Mapping[str, str], known: Mapping[str, ChannelManifest] = MANIFESTS
) -> list[str]:
    """All platforms enabled by settings or environment, installed or not.

    A token does not enable a platform that the settings turn off.
    """
    named = [name for name, settings in config.platforms.items() if settings.enabled]
    off = {name for name, settings in config.platforms.items() if settings.enabled is False}
    by_variable = [
        manifest.name
        for manifest in known.values()
        if is_true(env.get(platform_variable(manifest.name, "ENABLED"), ""))
        or (
            manifest.name not in off
            and any(env.get(variable, "").strip() for variable in manifest.enabled_by)
        )
    ]
    names = dict.fromkeys([*named, *by_variable])
    return [name for name in names if name not in SURFACES]


def _account_of(name: str) -> str:
    """Return the account of a channel. Raises `ConfigError` if it has no valid name."""
    account = name.partition("/")[2]
    if account and not _ACCOUNT.fullmatch(account):
        raise ConfigError(
            f"{account!r} is not a valid account name.",
            hint="Use lowercase letters, digits, - and _.",
        )
    return account


def _chat_commands() -> tuple[tuple[str, str], ...]:
    """The commands that chats offer, for the platform's own menu."""
    return tuple(
        (command.name, command.summary)
        for command in sorted(standard_commands().commands, key=lambda one: one.name)
        if Surface.CHAT in command.availability.value
    )


def _credential(manifest: ChannelManifest, settings: Platform, env: Mapping[str, str]) -> str:
    """Return what identifies the account: its token or the manifest's options; empty if not set."""
    option = manifest.account_option
    if not option:
        return (_first_variable(manifest, env) or settings.token).strip()
    names = (option,) if isinstance(option, str) else option
    values = [_option(manifest, name, settings, env) for name in names]
    return " ".join(values) if values[0] else ""


def _option(
    manifest: ChannelManifest, name: str, settings: Platform, env: Mapping[str, str]
) -> str:
    variable = env.get(manifest.variables.get(name, ""), "")
    return (variable or str(settings.extra.get(name) or "")).strip()


def _first_variable(manifest: ChannelManifest, env: Mapping[str, str]) -> str:
    return env.get(manifest.enabled_by[0], "") if manifest.enabled_by else ""


def _load_factory(manifest: ChannelManifest) -> ChannelFactory:
    module, _, name = manifest.factory.partition(":")
    try:
        return cast("ChannelFactory", getattr(import_module(module), name))
    except ImportError as error:
        packages = extra_requirements(manifest.extra) or [error.name or ""]
        raise ConfigError(
            f"The {manifest.name} channel needs a missing package: {error.name}.",
            hint=f"Install it with: {install_command(*packages)}",
        ) from error
