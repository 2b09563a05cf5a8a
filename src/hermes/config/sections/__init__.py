"""The sections of config.yaml as Structs with their defaults."""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Dollars: TypeAlias = Annotated[float, Meta(ge=0)]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]

NameList: TypeAlias = tuple[str, ...]
FreeTable: TypeAlias = Mapping[str, object]
"""A mapping whose keys are the user's own, or those of a driver that reads them itself."""

BoolOrMode: TypeAlias = bool | str
"""`true`, `false`, or a word such as `auto` that lets the program decide."""


class AllowsUnknownKeys:
    """Marks a section that may hold keys we do not know, because a driver or plugin reads them."""

    __slots__ = ()
