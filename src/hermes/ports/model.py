"""Interface to a language model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.events import Notice, ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Message
from hermes.schema.tools import ToolSpec


class OutputFormat(Struct, frozen=True, kw_only=True):
    """The answer must be JSON, matching the schema if one is given."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None


class OutputConstraints(Struct, frozen=True, kw_only=True):
    """Constraints on the tool calls and the format of an answer."""

    required: bool = False  # a tool call is required
    name: str = ""  # it must be this tool
    single: bool = False  # at most one call per answer
    format: OutputFormat | None = None


UNCONSTRAINED = OutputConstraints()


class ModelRequest(Struct, frozen=True):
    """One request to a model."""

    system: str
    messages: Sequence[Message]  # a valid history: every call has a result, roles alternate
    tools: Sequence[ToolSpec] = ()
    max_output: int | None = None
    effort: str | None = None
    run: str = ""  # requests of one run go to the same model; empty: a single request
    constraints: OutputConstraints = UNCONSTRAINED


ModelDelta: TypeAlias = TextDelta | ReasoningDelta | StreamReset | Notice
ModelChunk: TypeAlias = ModelDelta | Assistant


class Model(Protocol):
    """Yields deltas, then exactly one `Assistant`, then stops.

    Raises `ModelError` before the first chunk or between chunks. Leaving the
    `async with` closes the connection, so cancelling a task cancels the request.
    """

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def window(self) -> int:
        """Context window in tokens, input and output together."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]: ...
