"""Unwrap calls to unlisted tools, which the model makes through a proxy tool.

The transcript keeps the call as the model wrote it. Effects, approvals, the loop guard and
hooks see the unwrapped call.
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
    """Return the proxied call, or the call itself if it has none that could be run."""
    if call.name != PROXY_TOOL or call.broken or PROXY_TOOL not in tools:
        return call
    try:
        proxied = _PROXIED_CALL.decode(call.args)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call
    if proxied.name == PROXY_TOOL or proxied.name not in tools:
        return call
    return ToolCall(call.id, proxied.name, *parse_arguments(proxied.arguments))
