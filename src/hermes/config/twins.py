"""Settings that an environment variable gives when the file does not."""

from collections.abc import Mapping

from hermes.config.paths import KeyPath

_TERMINAL_KEYS = (
    *("cwd", "network", "timeout", "lifetime_seconds", "home_mode", "modal_mode"),
    "persistent_shell",
    *("docker_image", "docker_network", "docker_mount_cwd_to_workspace"),
    *("docker_run_as_host_user", "singularity_image", "modal_image", "daytona_image"),
    *("container_cpu", "container_memory", "container_disk", "container_persistent"),
    *("ssh_host", "ssh_user", "ssh_port", "ssh_key"),
)

TWINS: Mapping[str, KeyPath] = {
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


def with_twins(raw: dict[str, object], env: Mapping[str, str]) -> dict[str, object]:
    """The settings with those added that only the environment gives; the file's own win."""
    merged = dict(raw)
    for name, path in TWINS.items():
        value = env.get(name)
        if value:
            _add(merged, path, value)
    return merged


def twin_of(path: KeyPath) -> str:
    """The variable that gives this setting, or nothing."""
    return next((name for name, other in TWINS.items() if other == path), "")


def _add(merged: dict[str, object], path: KeyPath, value: str) -> None:
    if len(path) == 1:
        merged.setdefault(str(path[0]), value)
        return
    section, key = str(path[0]), str(path[1])
    inside = merged.get(section)
    if inside is None:
        merged[section] = {key: value}
    elif isinstance(inside, dict) and key not in inside:
        merged[section] = {**inside, key: value}
