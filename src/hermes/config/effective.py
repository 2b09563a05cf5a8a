"""The effective settings as plain values: defaults, the file's settings and unknown keys."""

from collections.abc import Mapping

import msgspec

from hermes.config.changed_settings import changed_settings
from hermes.config.document import find_value
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.key_paths import parse_path
from hermes.config.loader import load_config
from hermes.config.masking import mask_secrets, secrets_in
from hermes.config.variables import secret_values
from hermes.config.yaml_values import as_mapping
from hermes.kit.redact import Redactor


def load_effective(home: Home, env: Mapping[str, str]) -> object:
    loaded = load_config(home, env)
    return _with_unknown_keys(msgspec.to_builtins(loaded.config), dict(loaded.raw))


def effective_value(settings: object, name: str) -> tuple[bool, object]:
    """Whether the setting exists, and its value; a bare model name counts as `model.default`."""
    path = parse_path(name)
    found, value = find_value(settings, path)
    if not found and path == ("model", "default"):
        return find_value(settings, ("model",))
    return found, value


def _with_unknown_keys(known: object, raw: object) -> object:
    """Add unknown keys of the file to the known settings."""
    settings, given = as_mapping(known), as_mapping(raw)
    if settings is None or given is None:
        return known
    merged = {key: _with_unknown_keys(value, given.get(key)) for key, value in settings.items()}
    others = {str(key): value for key, value in given.items() if str(key) not in merged}
    return {**merged, **others}


def printable_settings(home: Home, env: Env, *, everything: bool = False) -> object:
    settings = load_effective(home, env)
    redactor = Redactor([*secret_values(env), *secrets_in(settings)])
    return mask_secrets(settings if everything else changed_settings(settings), redactor)


def as_yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import yaml  # noqa: PLC0415 - slow to import

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n").rstrip("\n")
