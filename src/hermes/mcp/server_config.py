"""One MCP server as the settings describe it: how it is reached, and what is taken of it."""

import fnmatch
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.schema.tools import MCP_PREFIX

NAME_PATTERN = re.compile(r"(?!.*[_.]{2})[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,30}[A-Za-z0-9-])?")
"""No two lines or dots in a row and none at the end: where a server's name ends must be certain."""
CLOSE_TIMEOUT = 5.0
"""Seconds in which a connection ends."""
MAX_TOOL_NAME = 64
"""Letters of a tool's name; no provider takes more."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


class StdioEndpoint(Struct, frozen=True, kw_only=True):
    """Started by us; `env` is all that it gets. `walled`: behind the wall of commands."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    walled: bool = False


class HttpEndpoint(Struct, frozen=True, kw_only=True):
    """Called over HTTP; `events` is the older way, with one stream of events."""

    url: str
    headers: Mapping[str, str]
    events: bool = False


Endpoint: TypeAlias = StdioEndpoint | HttpEndpoint


class ServerConfig(Struct, frozen=True, kw_only=True):
    """Seconds: `timeout` for a call, `connect` for the beginning.

    After `idle` without a call, or `lifetime` in all, it is let go until the next call.
    """

    name: str
    way: Endpoint
    timeout: float = 300.0
    connect: float = 60.0
    idle: float | None = None
    lifetime: float | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    parallel: bool = False
    resources: bool = True
    prompts: bool = True

    def takes(self, tool: str) -> bool:
        """Names may be patterns."""
        wanted = not self.include or any(fnmatch.fnmatchcase(tool, one) for one in self.include)
        return wanted and not any(fnmatch.fnmatchcase(tool, one) for one in self.exclude)

    @property
    def longest(self) -> float:
        """Seconds that a call takes at most, with the beginning where it is not connected."""
        return self.connect + self.timeout + 2 * CLOSE_TIMEOUT

    @property
    def where(self) -> str:
        """For people; never a variable or a header."""
        match self.way:
            case StdioEndpoint(argv=argv):
                return " ".join(argv)
            case HttpEndpoint(url=url):
                return url.partition("?")[0]

    def named(self, tool: str) -> str:
        """What the model calls it: `mcp__server__tool`, in letters that every provider takes."""
        name = f"{MCP_PREFIX}{safe_name(self.name)}__{safe_name(tool)}"
        if len(name) <= MAX_TOOL_NAME and not _UNSAFE.search(tool):
            return name
        # Two names must not become one.
        return f"{name[: MAX_TOOL_NAME - 7]}_{digest(tool)[:6]}"


def safe_name(name: str) -> str:
    """In letters that every provider takes."""
    return _UNSAFE.sub("_", name)


def duplicate_names(names: Iterable[str]) -> dict[str, str]:
    """Those that are the same to a model as an earlier one, each with that one."""
    first: dict[str, str] = {}
    return {name: one for name in names if (one := first.setdefault(safe_name(name), name)) != name}


def digest(*parts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()
