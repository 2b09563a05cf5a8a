"""The names that a shell may offer of what the program itself knows."""

from collections.abc import Iterable


def known(kind: str) -> Iterable[str]:
    """Of settings, those that do something."""
    match kind:
        case "provider":
            from hermes.models.providers import CUSTOM, PROVIDERS

            return [one.name for one in (*PROVIDERS, CUSTOM)]
        case "toolset":
            from hermes.tools.toolsets import known_toolsets

            return known_toolsets()
        case _:
            from hermes.config.idle import idle_names
            from hermes.config.unknown import setting_names

            return sorted(frozenset(setting_names()) - idle_names())
