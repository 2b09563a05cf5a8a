"""Of all settings only those that somebody has changed."""

from collections.abc import Mapping

import msgspec

from hermes.config.schema import Config
from hermes.config.sections.models import Model
from hermes.config.yaml_values import as_mapping


def changed_settings(settings: object) -> Mapping[object, object]:
    """What differs from the defaults; a key that we do not know always does."""
    own = as_mapping(settings) or {}
    # The model may be a name alone, within which nothing could differ.
    usual = Config() if as_mapping(own.get("model")) is None else Config(model=Model())
    return _without_defaults(own, as_mapping(msgspec.to_builtins(usual)) or {})


def _without_defaults(
    settings: Mapping[object, object], defaults: Mapping[object, object]
) -> dict[object, object]:
    found: dict[object, object] = {}
    for key, value in settings.items():
        inside, usual = as_mapping(value), as_mapping(defaults.get(key))
        if inside is not None and usual is not None:
            if less := _without_defaults(inside, usual):
                found[key] = less
        elif key not in defaults or value != defaults[key]:
            found[key] = value
    return found
