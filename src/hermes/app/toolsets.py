"""List the enabled toolsets, and compute the settings that switch them."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from hermes.app.toolbox import NO_MCP, configured_toolsets, mcp_servers_on, mcp_toolsets
from hermes.channels import MANIFESTS
from hermes.config.platforms import PLATFORMS
from hermes.config.schema import Config
from hermes.config.values import format_path
from hermes.kit.text import did_you_mean
from hermes.sandbox.backends import backend_on, unsupported_reason
from hermes.schema.errors import UsageError
from hermes.tools.catalog import built_in_toolsets, known_toolsets

EMPTY_TOOLSET = "safe"
"""Means an empty list, which by itself would fall back to that of the command line."""


class ToolsetRow(Struct, frozen=True, kw_only=True):
    """One toolset for display."""

    name: str
    tools: Sequence[str]
    on: Mapping[str, bool]
    missing: Sequence[str] = ()  # why parts of it are unavailable


def known_platforms(config: Config) -> list[str]:
    """The command line first, then all platforms named anywhere."""
    named = [*config.platforms, *config.platform_toolsets, *MANIFESTS]
    return list(dict.fromkeys(["cli", "api_server", *sorted(named)]))


def shown_platforms(config: Config) -> list[str]:
    """The command line and all enabled platforms."""
    wanted = [name for name, platform in config.platforms.items() if platform.enabled]
    return list(dict.fromkeys(["cli", *wanted, *config.platform_toolsets]))


def is_enabled(config: Config, name: str, platform: str) -> bool:
    """Whether a single toolset is enabled on a platform."""
    off = _expand_composites(config.agent.disabled_toolsets)
    if name in mcp_toolsets(config):
        return mcp_toolsets(config)[name].enabled and name in mcp_servers_on(config, platform)
    return name in _expand_composites(configured_toolsets(config, platform)) and name not in off


def list_toolsets(config: Config, platforms: Sequence[str]) -> list[ToolsetRow]:
    rows: list[ToolsetRow] = []
    for name, tools in built_in_toolsets().single.items():
        reasons: Sequence[str] = ()
        if name == "terminal":
            why = (
                unsupported_reason(backend_on(config.terminal, platform)) for platform in platforms
            )
            reasons = list(dict.fromkeys(filter(None, why)))
        on = {platform: is_enabled(config, name, platform) for platform in platforms}
        rows.append(ToolsetRow(name=name, tools=tools, on=on, missing=reasons))
    for name in mcp_toolsets(config):
        on = {platform: is_enabled(config, name, platform) for platform in platforms}
        rows.append(ToolsetRow(name=name, tools=["(MCP server)"], on=on))
    known = {*known_toolsets(), *mcp_toolsets(config), NO_MCP}
    unknown = {
        name: None
        for platform in platforms
        for name in configured_toolsets(config, platform)
        if name not in known
    }
    why = ("it is in the settings, but not part of this installation",)
    off = dict.fromkeys(platforms, False)
    return rows + [ToolsetRow(name=name, tools=(), on=off, missing=why) for name in unknown]


def expand_toolsets(names: Iterable[str], config: Config) -> list[str]:
    """Replace composite toolsets by their parts. Raises `UsageError` for unknown names."""
    single: dict[str, None] = {}
    known = [*known_toolsets(), *mcp_toolsets(config)]
    for name in names:
        if name not in known:
            suggestion = did_you_mean(name, known)
            raise UsageError(
                f"Unknown toolset: {name!r}.", hint=suggestion or "See `hermes tools list`."
            )
        single.update(dict.fromkeys(built_in_toolsets().composites.get(name, (name,))))
    if not single:
        raise UsageError("That toolset is empty.")
    return list(single)


def check_platform(name: str, config: Config) -> None:
    known = [*known_platforms(config), *(platform.prefix.lower() for platform in PLATFORMS)]
    if name not in known:
        suggestion = did_you_mean(name, known)
        raise UsageError(
            f"Unknown platform: {name}.",
            hint=suggestion or "For example: cli, api_server, webhook.",
        )


def settings_to_disable(
    config: Config, names: Sequence[str], platform: str | None
) -> dict[str, list[str]]:
    """The settings to write, by name."""
    if platform is None:
        off = _expand_composites(config.agent.disabled_toolsets)
        more = [name for name in names if name not in off]
        listed = [*config.agent.disabled_toolsets, *more]
        return {"agent.disabled_toolsets": listed} if more else {}
    chosen = configured_toolsets(config, platform)
    on = mcp_servers_on(config, platform)
    left = _without(chosen, [name for name in names if name not in mcp_toolsets(config)])
    if any(name in on for name in names):
        left = _with_servers(config, left, [name for name in on if name not in names])
    left = left or [EMPTY_TOOLSET]
    return {} if left == chosen else {_setting_name(platform): left}


def settings_to_enable(
    config: Config, names: Sequence[str], platform: str | None
) -> dict[str, list[str]]:
    off = config.agent.disabled_toolsets
    blocked = [name for name in names if name in _expand_composites(off)]
    if platform is not None and blocked:
        raise UsageError(
            f"{', '.join(blocked)}: disabled on all platforms.",
            hint=f"Enable it everywhere: hermes tools enable {' '.join(blocked)}",
        )
    changes: dict[str, list[str]] = {}
    if blocked:
        changes["agent.disabled_toolsets"] = _without(off, names)
    for target in [platform] if platform else ["cli", *config.platform_toolsets]:
        chosen = configured_toolsets(config, target)
        servers = [name for name in names if name in mcp_toolsets(config)]
        more = [name for name in names if name not in [*_expand_composites(chosen), *servers]]
        left = [*(one for one in chosen if one != EMPTY_TOOLSET), *more] if more else chosen
        named = [name for name in chosen if name in mcp_toolsets(config)]
        if (named or NO_MCP in chosen) and not {*servers} <= {*named}:
            left = _with_servers(config, left, list(dict.fromkeys([*named, *servers])))
        if left != chosen:
            changes[_setting_name(target)] = left
    return changes


def _expand_composites(names: Iterable[str]) -> list[str]:
    return [plain for name in names for plain in built_in_toolsets().composites.get(name, (name,))]


def _without(names: Iterable[str], gone: Sequence[str]) -> list[str]:
    """Remove names from a list; a composite is split only if necessary."""
    remaining: dict[str, None] = {}
    for name in names:
        parts = built_in_toolsets().composites.get(name, (name,))
        whole = not any(part in gone for part in parts)
        remaining.update(
            dict.fromkeys([name] if whole else [part for part in parts if part not in gone])
        )
    return list(remaining)


def _setting_name(platform: str) -> str:
    return format_path(("platform_toolsets", platform))


def _with_servers(config: Config, chosen: Iterable[str], servers: Sequence[str]) -> list[str]:
    """The list with exactly these servers; without any named, all would be enabled."""
    others = [name for name in chosen if name not in mcp_toolsets(config) and name != NO_MCP]
    return [*others, *(servers or [NO_MCP])]
