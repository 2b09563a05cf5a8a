"""Which tools of the asker are offered to the model, and whether it must call one."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, structs

from hermes.api.chat_objects import ResponseFormat
from hermes.api.errors import ApiError, invalid
from hermes.api.response_objects import TextFormat
from hermes.api.settings import ModelRoute
from hermes.api.side_calls import has_own_model
from hermes.app.build import App
from hermes.ports.model import OutputConstraints, OutputFormat
from hermes.schema.sessions import Session
from hermes.schema.tools import ToolSpec


class ToolChoice(Struct, frozen=True):
    """`bare` offers the asker's tools alone: a choice that forces a call can mean no others."""

    handed: tuple[ToolSpec, ...]
    bare: bool
    calling: OutputConstraints


def read_tool_choice(
    tools: tuple[ToolSpec, ...], choice: str | dict[str, Any] | None, parallel: bool | None
) -> ToolChoice:
    """Raises `ApiError` for a choice that makes no sense."""
    one = parallel is False and bool(tools)
    match choice:
        case None | "auto":
            return ToolChoice(tools, bare=False, calling=OutputConstraints(one=one))
        case "none":
            return ToolChoice((), bare=True, calling=OutputConstraints())
        case "required":
            if not tools:
                raise _invalid_tool_choice("tool_choice is required, but the request has no tools.")
            return ToolChoice(tools, bare=True, calling=OutputConstraints(must=True, one=one))
        case {"type": "function", "function": {"name": str(name)}}:
            return _named_tool(tools, name, one=one)
        case {"type": "function", "name": str(name)}:
            return _named_tool(tools, name, one=one)
        case _:
            raise _invalid_tool_choice("tool_choice is auto, none, required, or names a function.")


def _named_tool(tools: Sequence[ToolSpec], name: str, *, one: bool) -> ToolChoice:
    chosen = tuple(spec for spec in tools if spec.name == name)
    if not chosen:
        raise _invalid_tool_choice("tool_choice names no tool of this request.")
    return ToolChoice(chosen, bare=True, calling=OutputConstraints(must=True, name=name, one=one))


def _invalid_tool_choice(told: str) -> ApiError:
    return invalid(told, param="tool_choice")


def read_response_format(given: ResponseFormat | None) -> OutputFormat | None:
    """Raises `ApiError` when the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat()
    wanted = given.json_schema
    if wanted is None or wanted.schema is None:
        raise invalid("There is no schema.", param="response_format.json_schema")
    return OutputFormat(schema=wanted.schema, name=wanted.name, strict=wanted.strict)


def read_text_format(given: TextFormat | None) -> OutputFormat | None:
    """Raises `ApiError` when the name or the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat()
    if given.schema is UNSET or given.name is UNSET:
        raise invalid("A schema and its name are missing.", param="text.format")
    strict = None if given.strict is UNSET else given.strict
    return OutputFormat(schema=given.schema, name=given.name, strict=strict)


def with_output_format(offer: ToolChoice, form: OutputFormat | None) -> ToolChoice:
    """The offer with the form that is asked for."""
    if form is None:
        return offer
    return structs.replace(offer, calling=structs.replace(offer.calling, form=form))


async def require_output_format(app: App, session: Session, route: ModelRoute | None) -> None:
    """Raises `ApiError` when the model cannot be asked for JSON."""
    if route is not None:
        session = structs.replace(session, model=route.model, provider=route.provider)
    who = "What runs the turns here"
    if has_own_model(app):
        model = await app.models.model_for(session)
        if app.models.profile_of(model).forms:
            return
        who = f"{model.provider}/{model.name}"
    told = f"{who} cannot be asked for JSON of a given form. Ask for it in words, or give a tool."
    raise invalid(told, param="response_format", code="unsupported_response_format")
