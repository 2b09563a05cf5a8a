"""Install, remove and control the gateway's systemd service."""

from argparse import Namespace
from collections.abc import Mapping

from hermes.app.service.launcher import READY_TIMEOUT as START_TIMEOUT
from hermes.app.service.launcher import gateway_command
from hermes.app.service.status import gateway_status
from hermes.app.service.systemd import (
    Systemctl,
    install_unit,
    make_unit,
    serves_home,
    unit_name,
    unit_path,
)
from hermes.cli.context import CliContext
from hermes.config.env import Env, profile_env
from hermes.config.home import Home, ensure_home
from hermes.config.loader import load_config
from hermes.gateway.shutdown_budget import DRAIN_SECONDS, stop_timeout
from hermes.schema.errors import HermesError, UsageError

_EXTRA_SECONDS = 30.0
_LINGER_HINT = "To keep it running while you are logged out: loginctl enable-linger"


class SystemdService:
    def __init__(self, home: Home, env: Mapping[str, str], systemctl: Systemctl) -> None:
        self.name = unit_name(home)
        self._systemctl = systemctl
        self._stop_timeout = service_stop_timeout(home, env)

    @property
    def active(self) -> bool:
        return self._systemctl.is_active(self.name)

    @property
    def main_pid(self) -> int:
        return self._systemctl.main_pid(self.name)

    @property
    def condition(self) -> str:
        """The state that systemd reports, such as `active, enabled`."""
        names = ("ActiveState", "UnitFileState")
        states = [self._systemctl.property(self.name, name) for name in names]
        return ", ".join(state for state in states if state) or "unknown"

    def start(self) -> None:
        """Return when the gateway is ready."""
        self._systemctl.run_checked("start", self.name, timeout=START_TIMEOUT * 2 + _EXTRA_SECONDS)

    def stop(self) -> None:
        self._systemctl.run_checked("stop", self.name, timeout=self._stop_timeout + _EXTRA_SECONDS)

    def restart(self) -> None:
        self._systemctl.run_checked(
            "restart", self.name, timeout=self._stop_timeout + START_TIMEOUT * 2 + _EXTRA_SECONDS
        )

    def kill(self) -> None:
        self._systemctl.run_checked("kill", "--signal=SIGKILL", self.name)


def installed_service(home: Home, env: Mapping[str, str]) -> SystemdService | None:
    """The home's service; None if it is not installed or systemd does not answer."""
    if not serves_home(home, env):
        return None
    systemctl = Systemctl(env)
    return SystemdService(home, env, systemctl) if systemctl.works() else None


def active_service(home: Home, env: Mapping[str, str]) -> SystemdService | None:
    service = installed_service(home, env)
    return service if service is not None and service.active else None


def drain_seconds(home: Home, env: Mapping[str, str]) -> float:
    """Seconds that running turns get on shutdown; the default if settings are unreadable."""
    try:
        config = load_config(home, profile_env(home.dotenv, Env(env))).config
    except HermesError:
        return DRAIN_SECONDS
    return max(config.agent.restart_drain_timeout, DRAIN_SECONDS)


def service_stop_timeout(home: Home, env: Mapping[str, str]) -> float:
    """Seconds to wait for the gateway to stop."""
    return stop_timeout(drain_seconds(home, env))


def install(args: Namespace, context: CliContext) -> int:
    home, env = context.home(), context.env
    unit = make_unit(home, env, gateway_command(home), drain_seconds(home, env))
    if args.print:
        context.stdout.write(unit.text)
        return 0
    ensure_home(home)
    changed = install_unit(unit, home, force=args.force)
    context.print(f"{unit.path} {'written' if changed else 'is up to date'}")
    systemctl = Systemctl(env)
    if not systemctl.works():
        context.print(
            "systemd does not answer. Where it does, run:\n"
            "  systemctl --user daemon-reload\n"
            f"  systemctl --user enable --now {unit.name}\n"
            "Without systemd, run it in the background: hermes gateway start"
        )
        return 0
    systemctl.run_checked("daemon-reload")
    systemctl.run_checked("enable", unit.name)
    if args.start:
        return _start_service(context, SystemdService(home, env, systemctl))
    context.print(f"{unit.name} starts when you log in. Start it now: hermes gateway start")
    context.print(_LINGER_HINT)
    return 0


def _start_service(context: CliContext, service: SystemdService) -> int:
    running = gateway_status(context.home()).record
    if running is not None and running.pid != service.main_pid:
        raise UsageError(
            f"A gateway is already running outside the service (pid {running.pid}).",
            hint="Run `hermes gateway stop`, then: hermes gateway start",
        )
    context.load_config()  # with wrong settings it could not start again
    service.restart()
    context.print(f"{service.name} is running (pid {service.main_pid}) and starts when you log in")
    context.print(_LINGER_HINT)
    return 0


def uninstall(args: Namespace, context: CliContext) -> int:
    home, env = context.home(), context.env
    path = unit_path(home, env)
    if not path.exists():
        context.print(f"No service is installed for profile {home.profile}")
        return 0
    if not serves_home(home, env):
        raise UsageError(
            f"{path} is the service of another home.", hint="Uninstall it from there, or by hand."
        )
    service = installed_service(home, env)
    systemctl = Systemctl(env)
    if service is not None:
        timeout = service_stop_timeout(home, env) + _EXTRA_SECONDS
        systemctl.run_checked("disable", "--now", service.name, timeout=timeout)
    path.unlink()
    if service is not None:
        systemctl.run_checked("daemon-reload")
    context.print(f"{path} removed")
    return 0
