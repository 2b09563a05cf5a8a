"""The client's own tools: which of them are offered to the model, and how they may be called."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, structs

from hermes.api.errors import header_text, invalid
from hermes.kit.text import one_line
from hermes.ports.model import OutputConstraints
from hermes.schema.tools import ToolSpec

log = logging.getLogger(__name__)
T = TypeVar("T")

IGNORED_TOOLS_HEADER = "X-Hermes-Ignored-Tools"
MAX_TOOLS = 128
MAX_NAME = 64
"""Longest tool name that providers accept."""
MAX_LISTED = 20
"""Tool types named in the header of those left out."""
_TEXT_FIELD = "input"
"""The argument that holds the free text of a custom tool."""
_TEXT_SCHEMA = {
    "type": "object",
    "properties": {_TEXT_FIELD: {"type": "string"}},
    "required": [_TEXT_FIELD],
    "additionalProperties": False,
}

FunctionName: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_NAME, pattern=r"^[A-Za-z0-9_-]+$")
]
RequestTools: TypeAlias = Annotated[list[Raw], Meta(max_length=MAX_TOOLS)]
"""Tools of a request; their types are not checked here, because clients send many."""


class ToolFunction(Struct, frozen=True, kw_only=True):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _ToolType(Struct, frozen=True):
    type: str | None = None


class _ChatFunction(Struct, frozen=True):
    function: ToolFunction


class _TextFormat(Struct, frozen=True, kw_only=True):
    type: str = "text"
    syntax: str = ""
    definition: str = ""


class _CustomTool(Struct, frozen=True, kw_only=True):
    """A tool that takes free text instead of JSON."""

    name: FunctionName
    description: str | None = None
    format: _TextFormat | None = None


class _Namespace(Struct, frozen=True, kw_only=True):
    """A group of tools, as codex sends them for MCP servers and subagents."""

    name: FunctionName
    tools: RequestTools


class ClientTool(Struct, frozen=True, kw_only=True):
    """A tool of the client, with the spec that the model gets."""

    spec: ToolSpec
    name: str
    namespace: str = ""
    kind: Literal["function", "custom"] = "function"


class ClientTools(Struct, frozen=True, kw_only=True):
    """The tools to offer, by the name that the model sees, and the types that were left out."""

    tools: Mapping[str, ClientTool] = {}
    sent: Sequence[Raw] = ()
    """The offered ones as the client sent them."""
    ignored: tuple[str, ...] = ()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.tools.values())

    @property
    def headers(self) -> dict[str, str]:
        """Headers that name the tools that were left out."""
        if not self.ignored:
            return {}
        return {IGNORED_TOOLS_HEADER: header_text(", ".join(self.ignored[:MAX_LISTED]))}


def read_chat_tools(raw_tools: Sequence[Raw] | None) -> ClientTools:
    """Read the tools of a chat completion. Raises `ApiError`."""
    return _ToolReader(flat=False).read(raw_tools or ())


def read_response_tools(raw_tools: Sequence[Raw] | None) -> ClientTools:
    """Read the tools of a response, including custom tools and namespaces. Raises `ApiError`."""
    return _ToolReader(flat=True).read(raw_tools or ())


class _ToolReader:
    """Collects the tools of one request; `flat` ones have their name beside their type."""

    def __init__(self, *, flat: bool) -> None:
        self._flat = flat
        self._tools: dict[str, ClientTool] = {}
        self._ignored: dict[str, None] = {}

    def read(self, raw_tools: Sequence[Raw]) -> ClientTools:
        sent: list[Raw] = []
        for number, raw in enumerate(raw_tools):
            found = self._read(raw, f"tools[{number}]", "")
            self._tools |= found
            # A copy: the original would keep the whole body in memory.
            sent += [raw.copy()] if found else []
        if self._ignored:
            log.info("tools of a request that are not served: %s", ", ".join(self._ignored))
        return ClientTools(tools=self._tools, sent=sent, ignored=tuple(self._ignored))

    def _read(self, raw: Raw, param: str, namespace: str) -> dict[str, ClientTool]:
        kind = _decode(raw, _ToolType, param).type or "function"
        match kind:
            case "function":
                function = self._function(raw, param)
                schema = function.parameters or {"type": "object", "properties": {}}
                return self._offer(function.name, namespace, function.description, schema, param)
            case "custom" if self._flat:
                custom = _decode(raw, _CustomTool, param)
                tool = self._offer(
                    custom.name, namespace, _custom_description(custom), _TEXT_SCHEMA, param
                )
                return {
                    name: structs.replace(client_tool, kind="custom")
                    for name, client_tool in tool.items()
                }
            case "namespace" if self._flat and not namespace:
                group, found = _decode(raw, _Namespace, param), dict[str, ClientTool]()
                for number, inner in enumerate(group.tools):
                    found |= self._read(inner, f"{param}.tools[{number}]", group.name)
                return found
            case _:
                shown = one_line(kind, MAX_NAME)
                self._ignored[f"{namespace}.{shown}" if namespace else shown] = None
                return {}

    def _function(self, raw: Raw, param: str) -> ToolFunction:
        if self._flat:
            return _decode(raw, ToolFunction, param)
        return _decode(raw, _ChatFunction, param).function

    def _offer(
        self,
        name: str,
        namespace: str,
        description: str | None,
        schema: dict[str, Any],
        param: str,
    ) -> dict[str, ClientTool]:
        offered_name = tool_name(name, namespace)
        if offered_name in self._tools:
            raise invalid(f"Duplicate tool name {name!r}.", param=f"{param}.name")
        spec = ToolSpec(offered_name, description or "", schema)
        return {offered_name: ClientTool(spec=spec, name=name, namespace=namespace)}


def _decode(raw: Raw, kind: type[T], param: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        place = f"{param}{path.rstrip('`')}"
        raise invalid(f"Invalid request body at {place}: {problem}.", param=place) from error


def _custom_description(tool: _CustomTool) -> str:
    text, rule = tool.description or "", tool.format
    if rule is None or not rule.definition:
        return text
    return f"{text}\n\nThe input must match this {rule.syntax} grammar:\n{rule.definition}".strip()


def tool_name(name: str, namespace: str = "") -> str:
    """Return the name that the model sees; the same for the same tool in every request."""
    if not namespace:
        return name
    whole = f"{namespace}{name}" if namespace.endswith("_") else f"{namespace}__{name}"
    if len(whole) <= MAX_NAME:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: MAX_NAME - 9]}_{digest}"


def custom_arguments(text: str) -> str:
    """Return the free text of a custom tool as JSON arguments."""
    return msgspec.json.encode({_TEXT_FIELD: text}).decode()


def custom_text(arguments: str) -> str:
    """Return the free text in the arguments of a call; other arguments are returned unchanged."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, str])[_TEXT_FIELD]
    except (msgspec.MsgspecError, KeyError):
        return arguments


class ToolChoice(Struct, frozen=True):
    """Client tools and `constraints` on their calls; `only_client_tools` leaves out our own."""

    tools: ClientTools
    only_client_tools: bool
    constraints: OutputConstraints
    client_tools: tuple[ToolSpec, ...] = ()
    """The specs of `tools`."""


ANY_OWN_TOOLS = ToolChoice(ClientTools(), only_client_tools=False, constraints=OutputConstraints())
"""The choice of a request that has no tools of its own."""


def read_tool_choice(
    tools: ClientTools, choice: str | dict[str, Any] | None, parallel: bool | None
) -> ToolChoice:
    """Read `tool_choice`; one that only names tools that were left out counts as `auto`.

    Raises `ApiError` for an invalid choice.
    """
    single = parallel is False and bool(tools.tools)
    if choice is None or choice == "auto" or _names_unserved_tool(choice):
        return _auto(tools, single=single)
    match choice:
        case "none":
            nothing = structs.replace(tools, tools={})
            return ToolChoice(nothing, only_client_tools=True, constraints=OutputConstraints())
        case "required":
            error = 'tool_choice is "required", but the request has no tools.'
            return _required(tools, set(tools.tools), "", error, single=single)
        case {"type": "allowed_tools", "allowed_tools": {"tools": [*names], "mode": mode}} | {
            "type": "allowed_tools",
            "tools": [*names],
            "mode": mode,
        }:
            allowed = {name for one in names if (name := _chosen_name(one))}
            if mode == "auto":
                return _auto(_only(tools, allowed), single=single)
            error = "tool_choice allows no tool of this request."
            return _required(tools, allowed, "", error, single=single)
        case dict() if name := _chosen_name(choice):
            error = "tool_choice does not name a tool of this request."
            return _required(tools, {name}, name, error, single=single)
        case _:
            message = "tool_choice must be auto, none, required or a function."
            raise invalid(message, param="tool_choice")


def _auto(tools: ClientTools, *, single: bool) -> ToolChoice:
    constraints = OutputConstraints(single=single)
    return ToolChoice(
        tools, only_client_tools=False, constraints=constraints, client_tools=tools.specs
    )


def _required(
    tools: ClientTools, allowed: set[str], name: str, error: str, *, single: bool
) -> ToolChoice:
    chosen = _only(tools, allowed)
    if not chosen.tools:
        if not tools.ignored or name:
            raise invalid(error, param="tool_choice")
        return _auto(tools, single=single)
    constraints = OutputConstraints(required=True, name=name, single=single)
    return ToolChoice(
        chosen, only_client_tools=True, constraints=constraints, client_tools=chosen.specs
    )


def _only(tools: ClientTools, allowed: set[str]) -> ClientTools:
    kept = {name: tool for name, tool in tools.tools.items() if name in allowed}
    return structs.replace(tools, tools=kept)


def _names_unserved_tool(choice: object) -> bool:
    """Whether the choice names a tool by its type, such as `web_search`, or a chat's custom tool.

    None of them is offered here.
    """
    match choice:
        case {"type": "custom", "custom": {"name": str()}}:
            return True
        case {"type": str(kind)}:
            return kind not in {"function", "custom", "allowed_tools"}
        case _:
            return False


def _chosen_name(choice: object) -> str:
    """Return the name that the model sees of the tool that a choice names, or ""."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
        case {"type": "function" | "custom", "name": str(name), "namespace": str(namespace)}:
            return tool_name(name, namespace)
        case {"type": "function" | "custom", "name": str(name)}:
            return name
        case _:
            return ""
