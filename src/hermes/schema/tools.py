"""Specification of tools."""

from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

PROXY_TOOL = "tool_call"
"""The tool that calls unlisted tools by name."""

MCP_PREFIX = "mcp__"
"""Prefix of the tools of MCP servers."""


class Effect(StrEnum):
    """The effect of a tool; decides parallelism, approval and crash recovery."""

    READ = "read"
    WRITE = "write"
    OUTSIDE = "outside"


class ToolSpec(Struct, frozen=True, dict=True):
    """`schema` is the JSON schema of the arguments; `timeout` bounds one call in seconds.

    `foreign`: its results are untrusted content. `refunded`: a step that only calls such tools does
    not count toward the turn's step limit. `asks`: it only asks a person. `alone`: it never runs
    in parallel with another call, even if it only reads. `own`: Hermes or its user wrote its
    results. `stateful`: its last result holds state, which compaction keeps. `changes_files`: a
    checkpoint is taken before its first call in a turn.
    """

    name: str
    description: str
    schema: dict[str, Any]
    effect: Effect = Effect.OUTSIDE
    timeout: float = 300.0
    toolset: str = ""
    foreign: bool = False
    refunded: bool = False
    asks: bool = False
    alone: bool = False
    own: bool = False
    stateful: bool = False
    changes_files: bool = False

    @cached_property
    def characters(self) -> int:
        """Approximate size in a request, cached."""
        return len(self.name) + len(self.description) + len(msgspec.json.encode(self.schema))
