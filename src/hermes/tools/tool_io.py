"""Decode tool arguments, encode tool results, and limit the size of both."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from hermes.ports.approvals import ApprovalRequest
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Assistant, Message, Result, ToolCall
from hermes.schema.tools import Effect, ToolSpec

T = TypeVar("T", bound=Struct)

_ARGUMENT_PATH = re.compile(r"`\$\.(\w+)")
_FIELD_NAME = re.compile(r"field `([^`]*)`")
_TYPE_NAMES = {"string": "text", "integer": "a whole number", "boolean": "true or false"}
_DROPPED_KEYS = ("title", "default", "additionalProperties")


class Arguments(Generic[T]):
    """The parameters of one tool: their JSON schema, and a decoder into a Struct.

    Accepts `null` for "not given" and numbers as text, since models send both.
    """

    def __init__(self, tool: str, kind: type[T]) -> None:
        self._tool = tool
        self._kind = kind
        self.schema = compact_schema(kind)

    def spec(
        self, module: str, effect: Effect, *, timeout: float, toolset: str = "", **flags: bool
    ) -> ToolSpec:
        """Return the tool's spec; its description is `<tool>.md` next to the module."""
        text = Path(module).with_name(f"{self._tool}.md").read_text("utf-8").strip()
        return ToolSpec(
            self._tool, text, self.schema, effect, timeout=timeout, toolset=toolset, **flags
        )

    def decode(self, args: Raw) -> T:
        """Raises `ToolError` naming the parameter and its expected type."""
        try:
            document: object = msgspec.json.decode(args)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolError(f"{self._tool}: the arguments are not valid JSON: {error}") from error
        if not isinstance(document, dict):
            raise ToolError(f"{self._tool}: the arguments must be a JSON object.")
        fields = cast("dict[str, object]", document)
        present = {name: value for name, value in fields.items() if value is not None}
        try:
            return msgspec.convert(present, self._kind, strict=False)
        except msgspec.ValidationError as error:
            raise self._argument_error(str(error)) from error

    def _argument_error(self, message: str) -> ToolError:
        found = _ARGUMENT_PATH.search(message) or _FIELD_NAME.search(message)
        name = found[1] if found else ""
        properties: dict[str, dict[str, Any]] = self.schema["properties"]
        if name not in properties:
            known = ", ".join(properties)
            return ToolError(f"{self._tool}: unknown parameter `{name}`. Known: {known}.")
        wanted = _describe_type(properties[name])
        if message.startswith("Object missing") and "$." not in message:
            return ToolError(f"{self._tool}: the parameter `{name}` ({wanted}) is missing.")
        return ToolError(f"{self._tool}: `{name}` must be {wanted}. {message}.")


def encode_result(value: object) -> str:
    """Encode a tool's answer as the JSON the model reads."""
    return msgspec.json.encode(value).decode()


async def require_approval(ctx: ToolContext, request: ApprovalRequest) -> str:
    """Return why it was approved. Raises `ToolError` if it was denied."""
    decision = await ctx.request_approval(request)
    if not decision.allowed:
        raise ToolError(f"{request.tool}: {decision.why}")
    return decision.why


def compact_schema(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of a Struct without references, titles and defaults."""
    whole = msgspec.json.schema(kind)
    defs: dict[str, Any] = whole.get("$defs", {})
    return _shrink(defs[whole["$ref"].rpartition("/")[2]], defs)


def _shrink(node: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _shrink(defs[node["$ref"].rpartition("/")[2]], defs)
    small = {key: value for key, value in node.items() if key not in _DROPPED_KEYS}
    if "properties" in small:
        small.pop("description", None)
        named: dict[str, Any] = small["properties"]
        small["properties"] = {name: _shrink(part, defs) for name, part in named.items()}
    if "items" in small:
        small["items"] = _shrink(small["items"], defs)
    return small


def _describe_type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    kind = _TYPE_NAMES.get(node.get("type", ""), f"of type {node.get('type', 'JSON')}")
    low, high = node.get("minimum"), node.get("maximum")
    if low is not None and high is not None:
        return f"{kind} from {low} to {high}"
    return kind if low is None else f"{kind}, at least {low}"


def earlier_results(tool: str, messages: Sequence[Message]) -> Iterator[Result]:
    """Yield the results of one tool's calls, newest first.

    Some providers reuse call ids, so a result belongs to the nearest preceding call of its id.
    """
    pending: list[Result] = []
    for message in reversed(messages):
        if isinstance(message, Result):
            pending.append(message)
        elif pending and isinstance(message, Assistant):
            calls = {part.id: part.name for part in message.parts if isinstance(part, ToolCall)}
            yield from (result for result in pending if calls.get(result.call) == tool)
            pending = [result for result in pending if result.call not in calls]


class OutputLimits(Struct, frozen=True, kw_only=True):
    """Limits in characters: of a command's output, and of files per line and page; and in lines."""

    output: int = 50_000
    lines: int = 2_000
    line: int = 2_000
    page: int = 100_000


DEFAULT_LIMITS = OutputLimits()
