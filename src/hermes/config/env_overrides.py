"""Expand `${NAME}` and `${NAME:-default}` in settings, and apply overrides from the environment."""

import re
from collections.abc import Callable, Mapping

from hermes.config.key_paths import KeyPath
from hermes.config.yaml_values import as_list, as_mapping

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

SHELL_SECTIONS = frozenset({"hooks", "quick_commands"})
"""Sections with shell commands: unknown names are left to the shell."""


def expand_references(
    value: object,
    env: Mapping[str, str],
    missing: Callable[[KeyPath, str], None],
    path: KeyPath = (),
) -> object:
    """Replace all references; unresolved ones stay and are reported to `missing`."""
    if isinstance(value, str):
        return _expand_text(value, env, missing, path) if "${" in value else value
    if (items := as_mapping(value)) is not None:
        return {
            key: expand_references(item, env, missing, (*path, str(key)))
            for key, item in items.items()
        }
    if (entries := as_list(value)) is not None:
        return [expand_references(item, env, missing, (*path, i)) for i, item in enumerate(entries)]
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
            if path[:1] and path[0] not in SHELL_SECTIONS:
                missing(path, name)
            return reference[0]
        return value

    # Nothing after the last bracket can match, and scanning it would be slow.
    end = text.rfind("}") + 1
    return _REFERENCE.sub(replaced, text[:end]) + text[end:]


_TERMINAL_KEYS = (
    *("cwd", "network", "timeout", "lifetime_seconds", "home_mode", "modal_mode"),
    "persistent_shell",
    *("docker_image", "docker_network", "docker_mount_cwd_to_workspace"),
    *("docker_run_as_host_user", "singularity_image", "modal_image", "daytona_image"),
    *("container_cpu", "container_memory", "container_disk", "container_persistent"),
    *("ssh_host", "ssh_user", "ssh_port", "ssh_key"),
)

ENV_OVERRIDES: Mapping[str, KeyPath] = {
    "HERMES_TIMEZONE": ("timezone",),
    "HERMES_MAX_ITERATIONS": ("agent", "max_turns"),
    "HERMES_AGENT_TIMEOUT": ("agent", "gateway_timeout"),
    "HERMES_RESTART_DRAIN_TIMEOUT": ("agent", "restart_drain_timeout"),
    "HERMES_PREFILL_MESSAGES_FILE": ("prefill_messages_file",),
    "HERMES_ACCEPT_HOOKS": ("hooks_auto_accept",),
    "HERMES_REDACT_SECRETS": ("security", "redact_secrets"),
    "HERMES_GATEWAY_BUSY_INPUT_MODE": ("display", "busy_input_mode"),
    "HERMES_BACKGROUND_NOTIFICATIONS": ("display", "background_process_notifications"),
    "TERMINAL_ENV": ("terminal", "backend"),
    **{f"TERMINAL_{key.upper()}": ("terminal", key) for key in _TERMINAL_KEYS},
}


def with_env_overrides(raw: dict[str, object], env: Mapping[str, str]) -> dict[str, object]:
    """Add settings from the environment; those in the file win."""
    merged = dict(raw)
    for name, path in ENV_OVERRIDES.items():
        value = env.get(name)
        if value:
            _set_missing(merged, path, value)
    return merged


def env_override_of(path: KeyPath) -> str:
    """The variable that overrides this setting, or an empty string."""
    return next((name for name, other in ENV_OVERRIDES.items() if other == path), "")


def _set_missing(merged: dict[str, object], path: KeyPath, value: str) -> None:
    if len(path) == 1:
        merged.setdefault(str(path[0]), value)
        return
    section, key = str(path[0]), str(path[1])
    section_value = merged.get(section)
    if section_value is None:
        merged[section] = {key: value}
    elif isinstance(section_value, dict) and key not in section_value:
        merged[section] = {**section_value, key: value}
