"""Settings as they may be shown: every secret in them masked."""

from collections.abc import Iterator

from hermes.config.shapes import as_list, as_mapping
from hermes.config.variables import (
    is_ordinary,
    is_secret,
    is_trivial,
    names_secret,
    secrets_of,
)
from hermes.kit.redact import MASK, Redactor

_PLACES_OF_KEYS = frozenset({"ssh_key", "key_env"})
_MAPS = ("env", "environment", "headers", "cookies")
"""Endings of settings that hold whatever a stranger's program asks for."""
_HARMLESS = frozenset({"accept", "content-type", "user-agent"})


def masked(value: object, redactor: Redactor, name: str = "", *, inside: bool = False) -> object:
    """The same value with secrets masked, by the name they stand under and by what they are.

    `inside` a map of variables or headers everything is masked that is not surely harmless.
    """
    if (mapping := as_mapping(value)) is not None:
        inner = inside or _holds_anything(name)
        return {
            key: masked(item, redactor, str(key), inside=inner) for key, item in mapping.items()
        }
    if (entries := as_list(value)) is not None:
        return [masked(item, redactor, name, inside=inside) for item in entries]
    if value is None or isinstance(value, bool) or value == "":
        return value
    if _names_secret(name) or (inside and not _is_harmless(name)):
        return MASK
    return redactor.redact(value) if isinstance(value, str) else value


def secrets_in(value: object, name: str = "", *, inside: bool = False) -> Iterator[str]:
    """Every text that stands under the name of a secret, wherever in the settings."""
    if (mapping := as_mapping(value)) is not None:
        inner = inside or _holds_anything(name)
        for key, item in mapping.items():
            yield from secrets_in(item, str(key), inside=inner)
    elif (entries := as_list(value)) is not None:
        for item in entries:
            yield from secrets_in(item, name, inside=inside)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        if _names_secret(name) or (inside and not _is_harmless(name) and not is_trivial(text)):
            yield from secrets_of(text)


def _holds_anything(name: str) -> bool:
    small = name.lower()
    return small in _MAPS or small.endswith(tuple(f"_{ending}" for ending in _MAPS))


def _is_harmless(name: str) -> bool:
    return name.lower() in _HARMLESS or is_ordinary(name)


def _names_secret(name: str) -> bool:
    small = name.lower()
    if small in _PLACES_OF_KEYS:
        return False
    if small == "password_hash":
        return True
    return is_secret(name) if name.isupper() else names_secret(name)
