"""Read from the settings where the commands of a platform run."""

from hermes.config.sections.execution import Terminal

ISOLATION_BACKENDS = ("bubblewrap", "landlock")
"""Local isolation, strongest first."""
BACKENDS = ("auto", *ISOLATION_BACKENDS, "local", "docker", "ssh")
UNSUPPORTED_BACKENDS = frozenset({"modal", "daytona", "singularity", "vercel_sandbox"})


def remote_folder(terminal: Terminal, platform: str) -> str:
    """Where commands start on a remote machine; empty if they run on this one."""
    if backend_on(terminal, platform) != "ssh":
        return ""
    return terminal.cwd if terminal.cwd.startswith(("/", "~")) else "~"


def remote_location(terminal: Terminal, platform: str) -> str:
    """Tell the model where commands run, if not on the machine with the files."""
    folder = remote_folder(terminal, platform)
    if not folder:
        return ""
    user = f"{terminal.ssh_user}@" if terminal.ssh_user else ""
    return f"Commands run on {user}{terminal.ssh_host} over ssh, and start in {folder} there"


def runs_elsewhere(terminal: Terminal, platform: str) -> bool:
    """Whether commands from a platform find different programs than on this machine."""
    return backend_on(terminal, platform) in {"docker", "ssh"}


def backend_on(terminal: Terminal, platform: str) -> str:
    return terminal.backend_by_platform.get(platform, terminal.backend)


def network_on(terminal: Terminal, platform: str) -> bool:
    """Whether commands from a platform have network access without approval."""
    return terminal.network_by_platform.get(platform, terminal.network)


def unsupported_reason(backend: str) -> str:
    """Why a backend cannot be used; empty for supported ones."""
    if backend in BACKENDS:
        return ""
    if backend in UNSUPPORTED_BACKENDS:
        return f"terminal.backend {backend!r} is not supported"
    return f"terminal.backend {backend!r} is not known"
