"""The effective settings as plain values, with secrets masked where they are shown."""

from collections.abc import Iterator, Mapping

import msgspec

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.setting_warnings import changed_settings
from hermes.config.values import as_list, as_mapping, find_value, parse_path
from hermes.config.variables import (
    is_harmless,
    is_secret,
    is_secret_name,
    is_trivial_value,
    secret_parts,
    secret_values,
)
from hermes.kit.redact import MASK, Redactor

_KEY_LOCATIONS = frozenset({"ssh_key", "key_env"})
_FREE_MAPS = ("env", "environment", "headers", "cookies")
"""Suffixes of settings with free-form variables or headers."""
_HARMLESS_HEADERS = frozenset({"accept", "content-type", "user-agent"})


def load_effective(home: Home, env: Mapping[str, str]) -> object:
    """The defaults, the file's settings and its unknown keys."""
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
    """Add the file's unknown keys to the known settings."""
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


def mask_secrets(
    value: object, redactor: Redactor, name: str = "", *, inside: bool = False
) -> object:
    """Return the value with secrets masked, by key and by content.

    `inside` a map of variables or headers, everything not known to be harmless is masked.
    """
    if (mapping := as_mapping(value)) is not None:
        inner = inside or _is_free_map(name)
        return {
            key: mask_secrets(item, redactor, str(key), inside=inner)
            for key, item in mapping.items()
        }
    if (entries := as_list(value)) is not None:
        return [mask_secrets(item, redactor, name, inside=inside) for item in entries]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if _is_secret_setting(name) or (inside and not _is_harmless(name)):
        return MASK
    return redactor.redact(value) if isinstance(value, str) else value


def secrets_in(value: object, name: str = "", *, inside: bool = False) -> Iterator[str]:
    """Every secret in the settings, found by its key."""
    if (mapping := as_mapping(value)) is not None:
        inner = inside or _is_free_map(name)
        for key, item in mapping.items():
            yield from secrets_in(item, str(key), inside=inner)
    elif (entries := as_list(value)) is not None:
        for item in entries:
            yield from secrets_in(item, name, inside=inside)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if _is_secret_setting(name) or (
            inside and not _is_harmless(name) and not is_trivial_value(text)
        ):
            yield from secret_parts(text)


def _is_free_map(name: str) -> bool:
    small = name.lower()
    return small in _FREE_MAPS or small.endswith(tuple(f"_{ending}" for ending in _FREE_MAPS))


def _is_harmless(name: str) -> bool:
    return name.lower() in _HARMLESS_HEADERS or is_harmless(name)


def _is_secret_setting(name: str) -> bool:
    if name.lower() in _KEY_LOCATIONS:
        return False
    named_as_secret = is_secret(name) if name.isupper() else is_secret_name(name)
    return named_as_secret or name.lower() == "password_hash"
