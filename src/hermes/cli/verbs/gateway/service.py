"""The installed service of a home, where systemd can be asked about it."""

from collections.abc import Mapping

from hermes.config.home import Home
from hermes.daemon.launch import PATIENCE as START_PATIENCE
from hermes.daemon.systemd import Systemctl, serves_home, unit_name
from hermes.gateway.ending import DRAIN, waited_for
from hermes.schema.errors import HermesError

_SPARE = 30.0


class Service:
    def __init__(self, home: Home, env: Mapping[str, str], systemctl: Systemctl) -> None:
        self.name = unit_name(home)
        self._systemctl = systemctl
        self._patience = patience(home, env)

    @property
    def active(self) -> bool:
        return self._systemctl.is_active(self.name)

    @property
    def main_pid(self) -> int:
        return self._systemctl.main_pid(self.name)

    @property
    def condition(self) -> str:
        """In the words of systemd, such as `active, enabled`."""
        names = ("ActiveState", "UnitFileState")
        words = [self._systemctl.property(self.name, name) for name in names]
        return ", ".join(word for word in words if word) or "unknown"

    def start(self) -> None:
        """Returns when the gateway says that it is ready."""
        self._systemctl.must("start", self.name, patience=START_PATIENCE * 2 + _SPARE)

    def stop(self) -> None:
        self._systemctl.must("stop", self.name, patience=self._patience + _SPARE)

    def restart(self) -> None:
        self._systemctl.must(
            "restart", self.name, patience=self._patience + START_PATIENCE * 2 + _SPARE
        )

    def kill(self) -> None:
        self._systemctl.must("kill", "--signal=SIGKILL", self.name)


def installed_service(home: Home, env: Mapping[str, str]) -> Service | None:
    """None when no service is installed for this home, or systemd does not answer."""
    if not serves_home(home, env):
        return None
    systemctl = Systemctl(env)
    return Service(home, env, systemctl) if systemctl.works() else None


def active_service(home: Home, env: Mapping[str, str]) -> Service | None:
    service = installed_service(home, env)
    return service if service is not None and service.active else None


def drain_of(home: Home, env: Mapping[str, str]) -> float:
    """How long running turns may take at the end; settings that cannot be read say nothing."""
    from hermes.config.dotenv import env_of
    from hermes.config.env import Env
    from hermes.config.load import load_config

    try:
        config = load_config(home, env_of(home.dotenv, Env(env))).config
    except HermesError:
        return DRAIN
    return max(config.agent.restart_drain_timeout, DRAIN)


def patience(home: Home, env: Mapping[str, str]) -> float:
    """Seconds that the end of its gateway is waited for."""
    return waited_for(drain_of(home, env))
