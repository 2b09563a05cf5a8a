"""A tool that the model was not told of is called through another one: this takes the call out.

The transcript keeps the call as the model wrote it. Everybody else (effects, approvals, the
guard against loops, whoever watches) sees the call that is meant.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from hermes.kit.call_arguments import NO_ARGUMENTS, parse_arguments
from hermes.ports.tool import Tool
from hermes.schema.messages import ToolCall
from hermes.schema.tools import PROXY_TOOL


class _ProxiedCall(Struct, frozen=True):
    name: str
    arguments: Raw = NO_ARGUMENTS


_PROXIED_CALL = msgspec.json.Decoder(_ProxiedCall)


def unwrap_call(call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
    """The call inside; the call itself when it carries none that could be run."""
    if call.name != PROXY_TOOL or call.broken or PROXY_TOOL not in tools:
        return call
    try:
        carried = _PROXIED_CALL.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    if carried.name == PROXY_TOOL or carried.name not in tools:
        return call
    return ToolCall(call.id, carried.name, *parse_arguments(carried.arguments))
