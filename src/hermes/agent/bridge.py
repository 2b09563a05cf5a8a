"""A tool that the model was not told of is called through another one: this takes the call out.

The transcript keeps the call as the model wrote it. Everybody else (effects, approvals, the
guard against loops, whoever watches) sees the call that is meant.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from hermes.kit.arguments import NOTHING, read_arguments
from hermes.ports.tool import Tool
from hermes.schema.messages import ToolCall
from hermes.schema.tools import BRIDGE


class _Carried(Struct, frozen=True):
    name: str
    arguments: Raw = NOTHING


_CARRIED = msgspec.json.Decoder(_Carried)


def meant(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """The call inside; the call itself when it carries none that could be run."""
    if call.name != BRIDGE or call.broken or BRIDGE not in tools:
        return call
    try:
        carried = _CARRIED.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    if carried.name == BRIDGE or carried.name not in tools:
        return call
    return ToolCall(call.id, carried.name, *read_arguments(carried.arguments))
