"""Read tool choice and output format from a request."""

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
    """Client tools and how they may be called; `only_client_tools` offers only these tools, no own
    ones.
    """

    client_tools: tuple[ToolSpec, ...]
    only_client_tools: bool
    calling: OutputConstraints


def read_tool_choice(
    tools: tuple[ToolSpec, ...], choice: str | dict[str, Any] | None, parallel: bool | None
) -> ToolChoice:
    """Raises `ApiError` for an invalid choice."""
    single = parallel is False and bool(tools)
    match choice:
        case None | "auto":
            return ToolChoice(
                tools, only_client_tools=False, calling=OutputConstraints(single=single)
            )
        case "none":
            return ToolChoice((), only_client_tools=True, calling=OutputConstraints())
        case "required":
            if not tools:
                raise _invalid_tool_choice(
                    'tool_choice is "required", but the request has no tools.'
                )
            return ToolChoice(
                tools,
                only_client_tools=True,
                calling=OutputConstraints(required=True, single=single),
            )
        case {"type": "function", "function": {"name": str(name)}}:
            return _named_tool(tools, name, single=single)
        case {"type": "function", "name": str(name)}:
            return _named_tool(tools, name, single=single)
        case _:
            raise _invalid_tool_choice("tool_choice must be auto, none, required or a function.")


def _named_tool(tools: Sequence[ToolSpec], name: str, *, single: bool) -> ToolChoice:
    chosen = tuple(spec for spec in tools if spec.name == name)
    if not chosen:
        raise _invalid_tool_choice("tool_choice does not name a tool of this request.")
    return ToolChoice(
        chosen,
        only_client_tools=True,
        calling=OutputConstraints(required=True, name=name, single=single),
    )


def _invalid_tool_choice(message: str) -> ApiError:
    return invalid(message, param="tool_choice")


def read_response_format(given: ResponseFormat | None) -> OutputFormat | None:
    """Raises `ApiError` if the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat()
    json_schema = given.json_schema
    if json_schema is None or json_schema.schema is None:
        raise invalid("The schema is missing.", param="response_format.json_schema")
    return OutputFormat(schema=json_schema.schema, name=json_schema.name, strict=json_schema.strict)


def read_text_format(given: TextFormat | None) -> OutputFormat | None:
    """Raises `ApiError` if the name or the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat()
    if given.schema is UNSET or given.name is UNSET:
        raise invalid("The schema or its name is missing.", param="text.format")
    strict = None if given.strict is UNSET else given.strict
    return OutputFormat(schema=given.schema, name=given.name, strict=strict)


def with_output_format(choice: ToolChoice, output_format: OutputFormat | None) -> ToolChoice:
    """Return the choice with this output format added."""
    if output_format is None:
        return choice
    return structs.replace(choice, calling=structs.replace(choice.calling, format=output_format))


async def require_output_format(app: App, session: Session, route: ModelRoute | None) -> None:
    """Raises `ApiError` if the model does not support JSON output."""
    if route is not None:
        session = structs.replace(session, model=route.model, provider=route.provider)
    backend = "The runtime of this session"
    if has_own_model(app):
        model = await app.models.model_for(session)
        if app.models.profile_of(model).forms:
            return
        backend = f"{model.provider}/{model.name}"
    message = (
        f"{backend} does not support structured output. Ask for JSON in the prompt, or use a tool."
    )
    raise invalid(message, param="response_format", code="unsupported_response_format")
