"""How a tool describes itself to the model and to the house."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Effect(StrEnum):
    """How far a tool reaches; decides parallelism, approval and crash recovery."""

    READ = "read"
    WRITE = "write"
    OUTSIDE = "outside"


class ToolSpec(Struct, frozen=True):
    """`schema` is the JSON schema of the arguments; `timeout` bounds one call in seconds.

    `foreign` says that its results are words of strangers.
    """

    name: str
    description: str
    schema: dict[str, Any]
    effect: Effect = Effect.OUTSIDE
    timeout: float = 300.0
    toolset: str = ""
    foreign: bool = False
