"""Which tools of the asker are offered to the model, and whether it must call one."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.api.errors import ApiError, invalid
from hermes.ports.model import Calling
from hermes.schema.tools import ToolSpec


class Offer(Struct, frozen=True):
    """`bare` offers the asker's tools alone: a choice that forces a call can mean no others."""

    handed: tuple[ToolSpec, ...]
    bare: bool
    calling: Calling


def offer(
    tools: tuple[ToolSpec, ...], choice: str | dict[str, Any] | None, parallel: bool | None
) -> Offer:
    """Raises `ApiError` for a choice that makes no sense."""
    one = parallel is False and bool(tools)
    match choice:
        case None | "auto":
            return Offer(tools, bare=False, calling=Calling(one=one))
        case "none":
            return Offer((), bare=True, calling=Calling())
        case "required":
            if not tools:
                raise _refused("tool_choice is required, but the request has no tools.")
            return Offer(tools, bare=True, calling=Calling(must=True, one=one))
        case {"type": "function", "function": {"name": str(name)}}:
            return _named(tools, name, one=one)
        case {"type": "function", "name": str(name)}:
            return _named(tools, name, one=one)
        case _:
            raise _refused("tool_choice is auto, none, required, or names a function.")


def _named(tools: Sequence[ToolSpec], name: str, *, one: bool) -> Offer:
    chosen = tuple(spec for spec in tools if spec.name == name)
    if not chosen:
        raise _refused("tool_choice names no tool of this request.")
    return Offer(chosen, bare=True, calling=Calling(must=True, name=name, one=one))


def _refused(told: str) -> ApiError:
    return invalid(told, param="tool_choice")
