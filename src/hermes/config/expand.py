"""`${NAME}` and `${NAME:-default}` in the strings of a config, replaced from the environment."""

import re
from collections.abc import Callable, Mapping

from hermes.config.paths import KeyPath
from hermes.config.shapes import as_list, as_mapping

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

FOR_THE_SHELL = frozenset({"hooks", "quick_commands"})
"""Sections of commands: a name we do not know is the shell's to expand."""


def expand(
    value: object,
    env: Mapping[str, str],
    missing: Callable[[KeyPath, str], None],
    path: KeyPath = (),
) -> object:
    """The value with every reference replaced; one without a value stays and is reported."""
    if isinstance(value, str):
        return _expand_text(value, env, missing, path) if "${" in value else value
    if (items := as_mapping(value)) is not None:
        return {key: expand(item, env, missing, (*path, str(key))) for key, item in items.items()}
    if (entries := as_list(value)) is not None:
        return [expand(item, env, missing, (*path, i)) for i, item in enumerate(entries)]
    return value


def _expand_text(
    text: str, env: Mapping[str, str], missing: Callable[[KeyPath, str], None], path: KeyPath
) -> str:
    def replaced(reference: re.Match[str]) -> str:
        name, default = reference[1], reference[2]
        value = env.get(name)
        if value is None or (value == "" and default is not None):
            value = default
        if value is None:
            if path[:1] and path[0] not in FOR_THE_SHELL:
                missing(path, name)
            return reference[0]
        return value

    # Behind the last bracket nothing is whole; to look there would take time without end.
    end = text.rfind("}") + 1
    return _REFERENCE.sub(replaced, text[:end]) + text[end:]
