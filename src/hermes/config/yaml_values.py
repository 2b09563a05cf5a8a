"""Type checks and descriptions of YAML values."""

from typing import cast


def as_mapping(value: object) -> dict[object, object] | None:
    return cast("dict[object, object]", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    return cast("list[object]", value) if isinstance(value, list | tuple) else None


def describe_value(value: object) -> str:
    """The value as an error message shows it; long text is cut, since it may be a secret."""
    if isinstance(value, str):
        shown = value if len(value) <= 24 else value[:8] + "…"
        return f"the text {shown!r}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    names: dict[type, str] = {type(None): "nothing", dict: "a mapping", list: "a list"}
    return names.get(type(value), f"a {type(value).__name__}")
