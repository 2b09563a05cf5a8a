"""Configuration of one MCP server: how it is reached, and which tools are used."""

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.schema.tools import MCP_PREFIX

NAME_PATTERN = re.compile(r"(?!.*[_.]{2})[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,30}[A-Za-z0-9-])?")
"""No consecutive underscores or dots and none at the end: a tool's prefix must be unambiguous."""
CLOSE_TIMEOUT = 5.0
"""Seconds to close a connection."""
MAX_TOOL_NAME = 64
"""Characters of a tool's name; providers accept no more."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class StdioEndpoint(Struct, frozen=True, kw_only=True):
    """A process started by us; `env` is its whole environment. `sandboxed`: with isolation."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    sandboxed: bool = False


class HttpEndpoint(Struct, frozen=True, kw_only=True):
    """Reached over HTTP; `sse` selects the older transport with a separate event stream."""

    url: str
    headers: Mapping[str, str]
    sse: bool = False


Endpoint: TypeAlias = StdioEndpoint | HttpEndpoint


class ServerConfig(Struct, frozen=True, kw_only=True):
    """Settings of one server; times are in seconds.

    `timeout` limits a call, `connect` the start. After `idle` without a call or `lifetime` in all,
    it is disconnected until the next call.
    """

    name: str
    endpoint: Endpoint
    toolset_prefix: str = ""  # set if one of our own toolsets has its name
    timeout: float = 300.0
    connect: float = 60.0
    idle: float | None = None
    lifetime: float | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    parallel: bool = False
    resources: bool = True
    prompts: bool = True

    def is_enabled(self, tool: str) -> bool:
        """Whether a tool is enabled; names may be patterns."""
        wanted = not self.include or any(
            fnmatch.fnmatchcase(tool, pattern) for pattern in self.include
        )
        return wanted and not any(fnmatch.fnmatchcase(tool, pattern) for pattern in self.exclude)

    @property
    def toolset(self) -> str:
        """The name of its tools in the settings."""
        return f"{self.toolset_prefix}{self.name}"

    @property
    def max_call_seconds(self) -> float:
        """Seconds that a call takes at most, including connecting."""
        return self.connect + self.timeout + 2 * CLOSE_TIMEOUT

    @property
    def address(self) -> str:
        """The address for users; never environment variables or headers."""
        match self.endpoint:
            case StdioEndpoint(argv=argv):
                return " ".join(argv)
            case HttpEndpoint(url=url):
                return url.partition("?")[0]

    def tool_name(self, tool: str) -> str:
        """Return the name for the model: `mcp__server__tool`, in safe characters."""
        name = f"{MCP_PREFIX}{safe_name(self.name)}__{safe_name(tool)}"
        if len(name) <= MAX_TOOL_NAME and not _UNSAFE.search(tool):
            return name
        # A hash keeps names distinct after shortening.
        return f"{name[: MAX_TOOL_NAME - 7]}_{digest(tool)[:6]}"


def safe_name(name: str) -> str:
    """Replace characters that not every provider accepts."""
    return _UNSAFE.sub("_", name)


def duplicate_names(names: Iterable[str]) -> dict[str, str]:
    """Return the names that look the same to a model as an earlier one, with that one."""
    first: dict[str, str] = {}
    return {name: one for name in names if (one := first.setdefault(safe_name(name), name)) != name}


def digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
