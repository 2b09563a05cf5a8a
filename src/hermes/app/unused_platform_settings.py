"""Find settings and variables of chat platforms that nothing reads.

The gateway's own functions are run with mappings that record which names they read.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from hermes.app.channels import enabled_platforms
from hermes.app.chat_settings import ChatSettings
from hermes.app.gateway import gateway_rules, platform_rules
from hermes.channels import MANIFESTS
from hermes.config.env import Env
from hermes.config.platform_blocks import platform_blocks
from hermes.config.platforms import PLATFORMS, facts_of
from hermes.config.problems import Finding, Severity
from hermes.config.schema import Config
from hermes.config.sections.messaging import Platform, PlatformAccount
from hermes.config.setting_warnings import LIKELY_TYPO, NO_SUCH_SETTING, UNUSED
from hermes.config.values import KeyPath, as_mapping, format_path
from hermes.gateway.authorization import access_rules_from
from hermes.gateway.platform_settings import home_variables
from hermes.gateway.roles import command_access, role_permissions_from
from hermes.ports.channel import ChannelManifest
from hermes.session.keys import DIRECT_CHAT

_READ_BY_CHANNELS = frozenset({"DISCORD_MISSED_MESSAGE_BACKFILL"})
"""Variables for a part of an option."""
_HOME_SUFFIXES = ("", "_NAME", "_THREAD_ID")


class _RecordingEnv(Env):
    """An environment without variables that records the requested `names`."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__({})
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return False

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        self.names.add(name)
        return default


class _RecordingTable(dict[str, object]):
    """A table without keys that records the requested `names`."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.names.add(key)
        return default


def read_variables(manifest: ChannelManifest) -> frozenset[str]:
    """The variables that have an effect on a platform."""
    config, env, name = Config(), _RecordingEnv(), manifest.name
    chats = ChatSettings(config)
    platform_rules(name, config, chats, env)
    gateway_rules(config, chats, env, {name})
    enabled_platforms(config, env, {name: manifest})
    homes = (f"{home}{suffix}" for home in home_variables(name) for suffix in _HOME_SUFFIXES)
    own = (*manifest.variables.values(), *manifest.enabled_by)
    return frozenset({*env.names, *own, *homes, *_READ_BY_CHANNELS})


def read_keys(manifest: ChannelManifest) -> frozenset[str]:
    """Return the settings that have an effect inside and outside a platform's `extra`."""
    noted, name = _RecordingTable(), manifest.name
    access_rules_from(name, Env({}), Platform(extra=noted))
    command_access(noted, DIRECT_CHAT)
    command_access(noted, "group")
    role_permissions_from(noted)
    section = type(ChatSettings(Config()).section(name)).__struct_fields__
    options = manifest.options.__struct_fields__ if manifest.options is not None else ()
    return frozenset({*noted.names, *section, *options})


def unused_keys(raw: Mapping[str, object]) -> Iterator[Finding]:
    """A warning for each setting of a served platform that nothing reads."""
    for name, place, block in platform_blocks(raw):
        manifest = MANIFESTS.get(name)
        if manifest is None or manifest.options is None:
            continue
        own = read_keys(manifest)
        for path in _paths(as_mapping(block) or {}, place):
            entry = PlatformAccount if "accounts" in path else Platform
            known = own if path[-2] == "extra" else own.union(entry.__struct_fields__)
            if path[-1] not in known:
                remove = f"remove it with: hermes config unset {format_path(path)}"
                yield _finding(path, known, f"It has no effect; {remove}")


def _paths(block: Mapping[object, object], place: KeyPath) -> Iterator[KeyPath]:
    """The paths of the settings in a block, in its `extra` and in those of its accounts."""
    for key, value in block.items():
        if key == "extra":
            yield from ((*place, "extra", str(inner)) for inner in as_mapping(value) or {})
        elif key == "accounts":
            for account, own in (as_mapping(value) or {}).items():
                inside = (*place, "accounts", str(account))
                yield from _account_paths(as_mapping(own) or {}, inside)
        else:
            yield (*place, str(key))


def _account_paths(block: Mapping[object, object], place: KeyPath) -> Iterator[KeyPath]:
    fields = PlatformAccount.__struct_fields__
    yield from ((*place, str(key)) for key in block if key not in fields)
    yield from ((*place, "extra", str(key)) for key in as_mapping(block.get("extra")) or {})


def unused_variables(config: Config, env: Env) -> Iterator[Finding]:
    """A warning for each variable of a served platform that nothing reads.

    Variables of the process are only checked for enabled platforms: other programs may use similar
    names.
    """
    enabled = {*enabled_platforms(config, env)}
    for manifest in MANIFESTS.values():
        if manifest.options is None:
            continue
        names = env if manifest.name in enabled else env.profile_names
        beginnings = _beginnings(manifest.name)
        present = sorted(one for one in names if one.startswith(beginnings) and env[one].strip())
        known = read_variables(manifest) if present else frozenset[str]()
        for name in present:
            if name not in known:
                where = "from .env" if name in env.profile_names else "from the environment"
                yield _finding((name,), known, f"It has no effect; remove it {where}.")


def _beginnings(platform: str) -> tuple[str, ...]:
    prefixes = {
        prefix
        for facts in (facts_of(platform), *PLATFORMS)
        if facts.platform == platform
        for prefix in (facts.prefix, facts.home_prefix)
        if prefix
    }
    return tuple(f"{before}{prefix}_" for prefix in prefixes for before in ("", "HERMES_"))


def _finding(path: KeyPath, known: frozenset[str], hint: str) -> Finding:
    near = get_close_matches(str(path[-1]), sorted(known), n=1, cutoff=LIKELY_TYPO)
    message = f"{NO_SUCH_SETTING}; did you mean {near[0]}?" if near else UNUSED
    return Finding(severity=Severity.WARNING, path=path, message=message, hint=hint)
