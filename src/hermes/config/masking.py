"""Mask secrets in settings."""

from collections.abc import Iterator

from hermes.config.variables import (
    is_harmless,
    is_secret,
    is_secret_name,
    is_trivial_value,
    secret_parts,
)
from hermes.config.yaml_values import as_list, as_mapping
from hermes.kit.redact import MASK, Redactor

_KEY_LOCATIONS = frozenset({"ssh_key", "key_env"})
_FREE_MAPS = ("env", "environment", "headers", "cookies")
"""Suffixes of settings with free-form variables or headers."""
_HARMLESS_HEADERS = frozenset({"accept", "content-type", "user-agent"})


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
    small = name.lower()
    if small in _KEY_LOCATIONS:
        return False
    if small == "password_hash":
        return True
    return is_secret(name) if name.isupper() else is_secret_name(name)
