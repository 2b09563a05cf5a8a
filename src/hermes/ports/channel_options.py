"""Read a platform's own settings into its typed options: environment variables over the file."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from hermes.config.sections import FreeTable
from hermes.config.values import format_path
from hermes.schema.errors import ConfigError

T = TypeVar("T", bound=Struct)


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
    values = {name: extra[name] for name in kind.__struct_fields__ if name in extra}
    names = {name: f"platforms.{platform}.extra.{name}" for name in values}
    for name, variable in variables.items():
        if value := env.get(variable, "").strip():
            values[name], names[name] = value, variable
    try:
        return convert_options(kind, values)
    except msgspec.ValidationError as error:
        wrong = next(
            (label for name, label in names.items() if f"$.{name}" in str(error)), platform
        )
        raise ConfigError(
            f"{wrong} cannot be used: {str(error).partition(' - ')[0]}.",
            hint="Correct it, then restart the gateway.",
        ) from error


def convert_options(kind: type[T], values: FreeTable) -> T:
    """Convert values as people write them in YAML and in variables.

    Lists may be text with commas, ids may be numbers, and switches have the words of YAML. Raises
    `msgspec.ValidationError`.
    """
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        from hermes.config.repair import SettingsRepair  # noqa: PLC0415 - slow to import

        repair = SettingsRepair(kind)
        repaired = repair.repair(dict(values))
        if repair.findings:
            wrong = repair.findings[0]
            place = f"$.{format_path(wrong.path)}"
            raise msgspec.ValidationError(f"{wrong.message} - at `{place}`") from error
        return msgspec.convert(repaired, kind, strict=False)
