"""The settings in effect as plain values: the file's, the defaults', and the keys nobody knows."""

from collections.abc import Mapping

import msgspec

from hermes.config.change import lookup
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.paths import parse_path
from hermes.config.shapes import as_mapping


def load_effective(home: Home, env: Mapping[str, str]) -> object:
    loaded = load_config(home, env)
    return _with_others(msgspec.to_builtins(loaded.config), dict(loaded.raw))


def effective(settings: object, name: str) -> tuple[bool, object]:
    """Whether there is a setting of this name, and its value; a bare model answers as a section."""
    path = parse_path(name)
    found, value = lookup(settings, path)
    if not found and path == ("model", "default"):
        return lookup(settings, ("model",))
    return found, value


def _with_others(known: object, raw: object) -> object:
    """What the file says beyond the settings we know, added to them."""
    settings, given = as_mapping(known), as_mapping(raw)
    if settings is None or given is None:
        return known
    merged = {key: _with_others(value, given.get(key)) for key, value in settings.items()}
    others = {str(key): value for key, value in given.items() if str(key) not in merged}
    return {**merged, **others}
