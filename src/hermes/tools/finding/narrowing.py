"""When there are too many tools to be told of in every request, most are left to be looked for.

Our own are always told of. Those of servers and plugins are told of as long as they are few.
"""

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from hermes.ports.tool import Tool
from hermes.schema.tools import BRIDGE, ToolSpec
from hermes.tools.finding.tool import SEARCH, Most, ToolCalling, ToolSearch

BYTES_PER_TOKEN = 4
_AROUND = 60
"""Bytes that a request takes for one more tool, whatever is said of it."""


class Room(Struct, frozen=True, kw_only=True):
    """`always`: whatever is not ours is looked for; `never`: everything is told of.

    `share` is the part of a window that tools of others may take, `bytes` what all tools may.
    """

    always: bool = False
    never: bool = False
    share: float = 0.1
    bytes: int = 24_000
    most: Most = Most()


class Narrowed(Struct, frozen=True):
    """All tools that may be called, and which of them the model is not told of."""

    tools: Mapping[str, Tool]
    unlisted: frozenset[str] = frozenset()


def narrowed(tools: Mapping[str, Tool], ours: Collection[str], window: int, room: Room) -> Narrowed:
    others = [tool.spec for name, tool in sorted(tools.items()) if name not in ours]
    if not others or room.never or not (room.always or _too_many(tools, others, window, room)):
        return Narrowed(tools)
    search, calling = ToolSearch(others, room.most), ToolCalling()
    return Narrowed(
        {**tools, SEARCH: search, BRIDGE: calling}, frozenset(spec.name for spec in others)
    )


def _too_many(
    tools: Mapping[str, Tool], others: Collection[ToolSpec], window: int, room: Room
) -> bool:
    all_of_them = sum(_size(tool.spec) for tool in tools.values())
    share = window * BYTES_PER_TOKEN * room.share
    return all_of_them > room.bytes or sum(map(_size, others)) > share


def _size(spec: ToolSpec) -> int:
    told = len(spec.name) + len(spec.description.encode())
    return told + len(msgspec.json.encode(spec.schema)) + _AROUND
