"""How the agent speaks to a language model."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.events import Notice, ReasoningDelta, StreamReset, TextDelta
from hermes.schema.messages import Assistant, Message
from hermes.schema.tools import ToolSpec

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
"""Every reasoning effort a person may name, from least to most."""


class OutputFormat(Struct, frozen=True, kw_only=True):
    """The words of an answer are to be JSON, of this schema if there is one."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None


class OutputConstraints(Struct, frozen=True, kw_only=True):
    """What is wanted of calls: that one is made, of the tool `name` if given; one at a time.

    And of the words that come instead: their `form`.
    """

    must: bool = False
    name: str = ""
    one: bool = False
    form: OutputFormat | None = None


UNCONSTRAINED = OutputConstraints()


class ModelRequest(Struct, frozen=True):
    """`messages` are a valid history: every call has its result, roles are in order.

    `run` names the turn this request belongs to; requests of one run go to one model where
    there are several. Empty: it stands alone.
    """

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output: int | None = None
    effort: str | None = None
    run: str = ""
    calling: OutputConstraints = UNCONSTRAINED


ModelChunk: TypeAlias = TextDelta | ReasoningDelta | StreamReset | Notice | Assistant


class Model(Protocol):
    """Yields deltas, then exactly one `Assistant`, then stops.

    Raises `ModelError` before the first chunk or between chunks; leaving the
    `async with` closes the connection, so cancelling a task cancels the request.
    """

    @property
    def name(self) -> str: ...
    @property
    def provider(self) -> str: ...
    @property
    def window(self) -> int:
        """How many tokens fit, input and output together."""
        ...

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelChunk]]: ...
