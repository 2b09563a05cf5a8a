"""Find the settings that differ from the defaults."""

from collections.abc import Mapping

import msgspec

from hermes.config.schema import Config
from hermes.config.sections.models import Model
from hermes.config.yaml_values import as_mapping


def changed_settings(settings: object) -> Mapping[object, object]:
    """The settings that differ from the defaults; unknown keys always do."""
    given = as_mapping(settings) or {}
    # The model may be a bare name instead of a section.
    default = Config() if as_mapping(given.get("model")) is None else Config(model=Model())
    return _without_defaults(given, as_mapping(msgspec.to_builtins(default)) or {})


def _without_defaults(
    settings: Mapping[object, object], defaults: Mapping[object, object]
) -> dict[object, object]:
    found: dict[object, object] = {}
    for key, value in settings.items():
        section, default = as_mapping(value), as_mapping(defaults.get(key))
        if section is not None and default is not None:
            if changed := _without_defaults(section, default):
                found[key] = changed
        elif key not in defaults or value != defaults[key]:
            found[key] = value
    return found
