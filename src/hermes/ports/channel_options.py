"""Read a platform's own settings into its typed options: environment variables over the file."""

from collections.abc import Mapping
from typing import TypeVar, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from hermes.config.sections import FreeTable
from hermes.schema.errors import ConfigError

T = TypeVar("T", bound=Struct)
_LISTS: frozenset[object] = frozenset({tuple, list, frozenset})


def read_options(
    kind: type[T],
    platform: str,
    extra: FreeTable,
    env: Mapping[str, str],
    variables: Mapping[str, str],
) -> T:
    """Return the options; keys that `kind` does not have are ignored.

    `variables` maps option names to environment variables; an empty variable is not set. Raises
    `ConfigError` for a value of the wrong type.
    """
    hints = get_type_hints(kind)
    given = {name: extra[name] for name in kind.__struct_fields__ if name in extra}
    names = {name: f"platforms.{platform}.extra.{name}" for name in given}
    for name, variable in variables.items():
        if value := env.get(variable, "").strip():
            given[name], names[name] = value, variable
    # Lists may be written as comma-separated text in both places.
    for name, value in given.items():
        if isinstance(value, str) and _is_list(hints[name]):
            given[name] = [one.strip() for one in value.split(",") if one.strip()]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        wrong = next(
            (label for name, label in names.items() if f"$.{name}" in str(error)), platform
        )
        raise ConfigError(
            f"{wrong} cannot be used: {str(error).partition(' - ')[0]}.",
            hint="Correct it, then restart the gateway.",
        ) from error


def _is_list(hint: object) -> bool:
    return get_origin(hint) in _LISTS
