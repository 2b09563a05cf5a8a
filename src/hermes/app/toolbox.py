"""The tools of a profile: which ones each platform gets, and those of its MCP servers."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hermes.config.platforms import PLATFORMS
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.logs import RotatingFile
from hermes.ports.tool import Tool
from hermes.sandbox.backends import backend_on, network_on
from hermes.schema.tools import ToolSpec
from hermes.tools.catalog import (
    BUILT_IN,
    Registration,
    Toolsets,
    built_in_toolsets,
    list_tools,
    tools_of,
)
from hermes.tools.collaborators import ToolCollaborators

if TYPE_CHECKING:
    from hermes.app.build import App
    from hermes.mcp.servers import McpServers
    from hermes.tools.tool_search import OfferedTools, ToolBudget

log = logging.getLogger(__name__)

NO_MCP = "no_mcp"
"""In a platform's toolsets: no tools of MCP servers."""
EVERYTHING = "hermes-cli"


def reserved_toolsets() -> list[str]:
    """Names of built-in toolsets. An MCP server with such a name has the toolset `mcp-NAME`."""
    return [*built_in_toolsets().names, NO_MCP]


class ToolSelection(Struct, frozen=True, kw_only=True):
    """The toolsets chosen on the command line."""

    disabled: frozenset[str] = frozenset()  # disabled everywhere
    tools: Sequence[str] | None = None  # the only enabled tools, if any were chosen
    servers: frozenset[str] = frozenset()  # the only enabled servers, likewise


def tool_selection(
    config: Config, wanted: Sequence[str] | None, excluded: Sequence[str]
) -> ToolSelection:
    """Raises `UsageError` for an unknown toolset in `wanted`.

    Unknown names in `excluded` are allowed: they may belong to a feature that is not installed.
    """
    servers, known = mcp_toolsets(config) if wanted else {}, built_in_toolsets().names
    names = [name if name in known else toolset_name(name) for name in wanted or ()]
    names = [name for name in names if name != NO_MCP]
    return ToolSelection(
        disabled=frozenset(name if name in known else toolset_name(name) for name in excluded),
        tools=None if wanted is None else tools_of(n for n in names if n not in servers),
        servers=frozenset(name for name in names if name in servers),
    )


class Toolbox:
    """All tools of a profile, each built once, and which of them each platform gets."""

    def __init__(
        self,
        collaborators: Callable[[str], ToolCollaborators],
        config: Config,
        selection: ToolSelection,
        *,
        registered: Sequence[Registration] = BUILT_IN,
        specs: Mapping[str, ToolSpec] | None = None,
    ) -> None:
        """`collaborators` of a platform's tools are asked for at the first call of one."""
        self._config = config
        self._collaborators = collaborators
        self._registered = registered
        self._specs = specs
        self._built: dict[tuple[str, bool], Mapping[str, Tool]] = {}
        self._selection = selection
        self._offered: dict[str, Mapping[str, Tool]] = {}
        self.changes = 0
        """How often the tools changed; until the next time, each platform keeps its tools."""
        self._added: dict[str, Mapping[str, Tool]] = {}
        self._toolsets = built_in_toolsets() if specs is None else Toolsets(specs)
        self._builtin = frozenset(self._toolsets.tools_of(self._toolsets.names))

    def tools_on(self, platform: str) -> Mapping[str, Tool]:
        """The tools of a platform by name."""
        if platform not in self._offered:
            known = self._toolsets.names
            excluded = self._selection.disabled.union(self._config.agent.disabled_toolsets)
            disabled = self._toolsets.tools_of(excluded.intersection(known))
            names: Collection[str] | None = self._selection.tools
            if names is None:
                configured = configured_toolsets(self._config, platform)
                names = self._toolsets.tools_of(name for name in configured if name in known)
            names = {*names}.difference(disabled)
            # Platforms with the same sandbox and network settings share their tools.
            terminal = self._config.terminal
            key = backend_on(terminal, platform), network_on(terminal, platform)
            if key not in self._built:
                collaborators = cache(partial(self._collaborators, platform))
                self._built[key] = list_tools(collaborators, self._registered, self._specs)
            own = {name: tool for name, tool in self._built[key].items() if name in names}
            added = self._added_tools(platform) if self._added else {}
            self._offered[platform] = {**added, **own}
        return self._offered[platform]

    def add_tools(self, tools: Sequence[Tool], *, toolset: str = "") -> None:
        """Add tools of servers and plugins, for turns that start later.

        They replace all earlier tools of their toolset; pass `toolset` to replace one even if
        `tools` is empty. If two tools have the same name, a platform gets that of its first
        enabled toolset.
        """
        added: dict[str, dict[str, Tool]] = {toolset: {}} if toolset else {}
        for tool in tools:
            name, own = tool.spec.name, tool.spec.toolset
            siblings = added.setdefault(own, {})
            if name in self._builtin:
                log.warning("skipped %s of %s: a built-in tool has that name", name, own)
                continue
            if name in siblings:
                log.warning("skipped %s of %s: there is already a tool of that name", name, own)
                continue
            others = [one for one, tools in self._added.items() if one != own and name in tools]
            if others:
                log.warning("%s and %s both have a tool %s; only one is used", own, others[0], name)
            siblings[name] = tool
        self._added |= added
        self._offered.clear()
        self.changes += 1

    def remove_toolset(self, toolset: str) -> None:
        """Remove a toolset added by `add_tools`."""
        self._added.pop(toolset, None)
        self._offered.clear()
        self.changes += 1

    def update_settings(self, config: Config) -> None:
        """Apply reloaded settings about toolsets and servers."""
        disabled = config.agent.disabled_toolsets
        self._config = replace(
            self._config,
            mcp_servers=config.mcp_servers,
            toolsets=config.toolsets,
            platform_toolsets=config.platform_toolsets,
            agent=replace(self._config.agent, disabled_toolsets=disabled),
        )
        self._offered.clear()
        self.changes += 1

    def may_offer(self, toolset: str) -> bool:
        """Whether any platform could get its tools."""
        selection = self._selection
        if toolset in selection.disabled or toolset in self._config.agent.disabled_toolsets:
            return False
        return selection.tools is None or toolset in selection.servers

    def tools_named(self, names: Iterable[str]) -> list[str]:
        """The tools of these toolsets, including servers. Raises `UsageError`."""
        names = list(names)
        others = {*mcp_toolsets(self._config), *self._added}
        joined = [tool for name in names for tool in self._added.get(name, ())]
        own = self._toolsets.tools_of(name for name in names if name not in others)
        return [*own, *joined]

    def toolsets(self) -> Mapping[str, Sequence[str]]:
        """The tools of each toolset."""
        builtin = {name: self._toolsets.tools_of([name]) for name in self._toolsets.names}
        return {**{name: [*tools] for name, tools in self._added.items()}, **builtin}

    def _added_tools(self, platform: str) -> dict[str, Tool]:
        """Tools of servers and plugins enabled on a platform."""
        enabled = mcp_servers_on(self._config, platform, self._added)
        sets = [name for name in enabled if self.may_offer(name)]
        found: dict[str, Tool] = {}
        for toolset in sets:
            for name, tool in self._added.get(toolset, {}).items():
                found.setdefault(name, tool)
        return found

    def limit(self, tools: Mapping[str, Tool], window: int) -> "OfferedTools | None":
        """The reduced list if there are too many tools, or None."""
        if not self._added:
            return None
        from hermes.tools.tool_search import limit_tools  # noqa: PLC0415 - only with servers

        limited = limit_tools(tools, self._builtin, window, _tool_budget(self._config))
        return limited if limited.unlisted else None


def configured_toolsets(config: Config, platform: str) -> list[str]:
    """The toolsets that the settings name for a platform, translated to this version's names."""
    toolsets = config.platform_toolsets
    chosen = toolsets.get(platform, toolsets.get("cli", config.toolsets))
    names = [toolset_name(name, platform) for name in chosen]
    # A worker on a board cannot end its task without these tools.
    return [*names, "kanban"] if platform == "kanban" and "kanban" not in names else names


def toolset_name(name: str, platform: str = "") -> str:
    """Translate the public names of the full set: `all`, `*`, and `hermes-PLATFORM`."""
    if name in {"all", "*", f"hermes-{platform}"}:
        return EVERYTHING
    if not name.startswith("hermes-"):
        return name
    # In the public system the webhook's set is smaller: elsewhere its name must not mean all.
    shared = name.removeprefix("hermes-").replace("-", "_")
    is_platform = any(facts.platform == shared for facts in PLATFORMS) and shared != "webhook"
    return EVERYTHING if is_platform else name


def mcp_toolsets(config: Config) -> dict[str, McpServer]:
    """The configured MCP servers by the name of their toolset."""
    if not config.mcp_servers:
        return {}
    own = reserved_toolsets()
    servers = config.mcp_servers.items()
    return {f"mcp-{name}" if name in own else name: server for name, server in servers}


def mcp_servers_on(config: Config, platform: str, joined: Iterable[str] = ()) -> list[str]:
    """The enabled toolsets of servers: those listed for the platform, or all if none is listed."""
    servers = list(dict.fromkeys([*mcp_toolsets(config), *joined]))
    chosen = configured_toolsets(config, platform)
    named = [name for name in servers if name in chosen]
    enabled = named if named or NO_MCP in chosen or not chosen else servers
    return [name for name in enabled if name not in config.agent.disabled_toolsets]


def _tool_budget(config: Config) -> "ToolBudget":
    from hermes.tools.tool_search import (  # noqa: PLC0415 - only when needed
        SearchLimits,
        ToolBudget,
    )

    settings = config.tools.tool_search
    return ToolBudget(
        always=settings.enabled is True,
        never=settings.enabled is False,
        share=settings.threshold_pct / 100,
        bytes=settings.max_bytes,
        search_limits=SearchLimits(
            default=settings.search_default_limit, maximum=settings.max_search_limit
        ),
    )


MAX_LOG_BYTES = 1_000_000


class McpService(Struct):
    """Loads and reloads the profile's MCP servers; used by `/reload-mcp`."""

    _base: "App"
    _workspace: str
    _closing: AsyncExitStack
    loaded: "McpServers | None" = None
    """The servers, once their code was needed."""

    @property
    def confirms_reload(self) -> bool:
        servers = self.loaded
        if servers is None:
            return self._base.config.approvals.mcp_reload_confirm
        return servers.confirms_reload

    def load(self) -> "McpServers":
        """Load the code; nothing is connected before the first turn."""
        if self.loaded is None:
            from hermes.mcp.servers import McpDeps, McpServers  # noqa: PLC0415 - only with servers

            base = self._base
            deps = McpDeps(
                home=base.home,
                env=base.env,
                loaded=base.loaded,
                toolbox=base.toolbox,
                sandbox=base.sandboxes.local,
                reserved=reserved_toolsets(),
                blobs=base.blobs,
                clock=base.clock,
                redactor=base.redactor,
                workspace=self._workspace,
            )
            log = base.home.logs / "mcp-stderr.log"
            stderr = RotatingFile(log, MAX_LOG_BYTES, 1)
            self._closing.callback(stderr.close)
            self.loaded = McpServers(deps, base.tasks, stderr)
        return self.loaded

    def states(self) -> list[tuple[str, str]]:
        """Each server's name and status, for people."""
        return self.loaded.states() if self.loaded is not None else []

    def status(self) -> str:
        return "; ".join(f"{name} {state}" for name, state in self.states())

    async def reload(self) -> str:
        """Reconnect with the current settings; running calls fail."""
        return await self.load().reload()
