"""Provider, address and key of a section are one unit: what a change of one takes with it.

`provider`, `base_url` and `api_key` stand beside each other in `model`, in the entries of
`fallback_providers` and `custom_providers`, in the slots of `auxiliary` and elsewhere. When one
of them is set alone, whatever was there for another provider or server must not be combined with
the new one.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from hermes.config.change import lookup
from hermes.config.paths import KeyPath
from hermes.config.shapes import as_mapping

PROVIDER, ADDRESS, KEY = "provider", "base_url", "api_key"
_OF_A_PROVIDER = (ADDRESS, KEY, "key_env", "api_mode")
_BY_ADDRESS = {"", "auto", "custom"}
"""Providers that mean whoever is at the address."""


def outdated(document: object, path: KeyPath, value: object) -> tuple[KeyPath, ...]:
    """The settings beside `path` that no longer hold once it has this value; None unsets it."""
    section = _section(document, path)
    new = str(value or "").strip()
    match path[-1] if section else None:
        case "provider":
            names = _after_provider(section, new.lower())
        case "base_url":
            names = _after_address(section, new)
        case _:
            names = ()
    return tuple((*path[:-1], name) for name in names if name in section)


def exposed(document: object, path: KeyPath) -> str:
    """Whose key, if any, goes to the address that `path` sets: a provider's, or a variable's."""
    section = _section(document, path)
    if path[-1] != ADDRESS or _text(section, KEY):
        return ""
    provider = _text(section, PROVIDER)
    return _text(section, "key_env") or ("" if provider.lower() in _BY_ADDRESS else provider)


def _after_provider(section: Mapping[str, object], new: str) -> tuple[str, ...]:
    old = _text(section, PROVIDER).lower()
    address = _text(section, ADDRESS)
    if old == new:
        return ()
    if new in _BY_ADDRESS and address:
        return ()
    if old in {"", "auto"} and not address:
        # A key without an address gets its provider now; one with an address belongs to it.
        return ()
    return _OF_A_PROVIDER


def _after_address(section: Mapping[str, object], new: str) -> tuple[str, ...]:
    old = _text(section, ADDRESS)
    at_home = not old and _text(section, PROVIDER).lower() not in _BY_ADDRESS
    moved = _host(old) != _host(new) if old else at_home and bool(new)
    return (KEY,) if moved else ()


def _section(document: object, path: KeyPath) -> Mapping[str, object]:
    found, section = lookup(document, path[:-1])
    inside = as_mapping(section) if found else None
    return {str(name): value for name, value in (inside or {}).items()}


def _text(section: Mapping[str, object], name: str) -> str:
    return str(section.get(name) or "").strip()


def _host(url: str) -> str:
    """Where a key would be sent; a text that is no address stands for itself."""
    try:
        return urlsplit(url if "://" in url else f"//{url}").netloc.rpartition("@")[2].lower()
    except ValueError:
        return url
