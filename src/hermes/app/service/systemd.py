"""Run the gateway as a systemd user service: its unit file and systemctl calls."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.app.service.lifecycle import ExitCode
from hermes.config.home import DEFAULT_PROFILE, Home, user_home
from hermes.gateway.shutdown_budget import stop_timeout
from hermes.kit.errors import ConfigError, HermesError, UsageError
from hermes.kit.files import read_regular_file, write_atomic, write_error_hint

_TIMEOUT = 20.0
WATCHDOG = 120
"""Seconds without a sign of life after which systemd restarts the gateway."""

_TEMPLATE = """\
# Written by `hermes gateway install`, which replaces it; put changes into {name}.d/*.conf
[Unit]
Description=Hermes gateway ({profile})

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
WorkingDirectory={folder}
Environment={environment}
Restart=always
RestartSec=5
RestartForceExitStatus={restart}
RestartPreventExitStatus={wrong_config}
SuccessExitStatus=130 143
TimeoutStartSec=120
TimeoutStopSec={stop}
WatchdogSec={watchdog}
KillMode=mixed
# Tools run in this service too and may need sudo, containers or any folder of their user,
# so no rights are removed here. These settings keep one tool from ending everything, and
# memory with secrets from being written to disk.
OOMPolicy=continue
LimitCORE=0

[Install]
WantedBy=default.target
"""


class Unit(Struct, frozen=True, kw_only=True):
    """A unit file: its path and text."""

    name: str
    path: Path
    text: str


def unit_name(home: Home) -> str:
    suffix = "" if home.profile == DEFAULT_PROFILE else f"-{home.profile}"
    return f"hermes-gateway{suffix}.service"


def unit_path(home: Home, env: Mapping[str, str]) -> Path:
    config_home = env.get("XDG_CONFIG_HOME", "")
    base = Path(config_home) if config_home.startswith("/") else user_home(env) / ".config"
    return base / "systemd" / "user" / unit_name(home)


def make_unit(home: Home, env: Mapping[str, str], command: Sequence[str], drain: float) -> Unit:
    """`drain` is how many seconds the gateway gives running turns at shutdown."""
    name = unit_name(home)
    variables = {"PATH": env.get("PATH", ""), "HERMES_HOME": str(home.root)}
    text = _TEMPLATE.format(
        name=name,
        profile=home.profile,
        # Variables are expanded in commands.
        command=" ".join(_quoted(word).replace("$", "$$") for word in _startable(command)),
        folder=_path(user_home(env)),
        environment=" ".join(
            _quoted(f"{key}={value}") for key, value in variables.items() if value
        ),
        restart=int(ExitCode.RESTART),
        wrong_config=int(ExitCode.WRONG_CONFIG),
        stop=int(stop_timeout(drain)),
        watchdog=WATCHDOG,
    )
    return Unit(name=name, path=unit_path(home, env), text=text)


def install_unit(unit: Unit, home: Home, *, force: bool = False) -> bool:
    """Return whether anything changed; raises `UsageError` if the unit is another home's."""
    existing = _read(unit.path)
    other = _home_in(existing or "")
    if other is not None and other != _quoted(f"HERMES_HOME={home.root}") and not force:
        raise UsageError(
            f"{unit.path} belongs to another home: {other}.",
            hint="Remove it there with `hermes gateway uninstall`, or replace it with --force.",
        )
    if existing == unit.text:
        return False
    try:
        unit.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(unit.path, unit.text.encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(
            f"{unit.path} cannot be written: {error.strerror}.",
            hint=write_error_hint(error, "Make the folder writable."),
        ) from error
    return True


def serves_home(home: Home, env: Mapping[str, str]) -> bool:
    """Whether a unit for this home is installed."""
    text = _read(unit_path(home, env)) or ""
    return _home_in(text) == _quoted(f"HERMES_HOME={home.root}")


class SystemctlResult(Struct, frozen=True):
    code: int
    text: str


class Systemctl:
    """Runs `systemctl --user`."""

    def __init__(self, env: Mapping[str, str], program: str = "systemctl") -> None:
        self._env = dict(env)
        self._program = program

    def works(self) -> bool:
        return self._run("show", "--property=Version").code == 0

    def run_checked(self, *args: str, timeout: float = _TIMEOUT) -> None:
        answer = self._run(*args, timeout=timeout)
        if answer.code != 0:
            names_unit = args[-1].endswith(".service")
            raise HermesError(
                f"`{self._program} --user {' '.join(args)}` failed: {answer.text}",
                hint=f"See: journalctl --user -u {args[-1]} -n 50" if names_unit else "",
            )

    def property(self, unit: str, name: str) -> str:
        """Return a property of a unit, or "" if unknown."""
        answer = self._run("show", f"--property={name}", "--value", unit)
        return answer.text if answer.code == 0 else ""

    def is_active(self, unit: str) -> bool:
        return self.property(unit, "ActiveState") in {"active", "activating", "reloading"}

    def main_pid(self, unit: str) -> int:
        text = self.property(unit, "MainPID")
        return int(text) if text.isdecimal() else 0

    def _run(self, *args: str, timeout: float = _TIMEOUT) -> SystemctlResult:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell
                [self._program, "--user", *args],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return SystemctlResult(-1, str(error))
        output = done.stdout if done.returncode == 0 else done.stderr or done.stdout
        return SystemctlResult(done.returncode, output.decode(errors="replace").strip())


def _read(path: Path) -> str | None:
    try:
        return read_regular_file(path).decode(errors="replace")
    except OSError:
        return None


def _home_in(text: str) -> str | None:
    found = re.search(r'^Environment=.*?("HERMES_HOME=(?:[^"\\]|\\.)*")', text, re.MULTILINE)
    return found[1] if found else None


def _startable(command: Sequence[str]) -> list[str]:
    """systemd rejects program paths with quotes and similar characters; `env` accepts them."""
    special = set("\"'\\$") & set(command[0])
    return ["/usr/bin/env", *command] if special else list(command)


def _quoted(text: str) -> str:
    """Escape specifiers, too."""
    _check_one_line(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _path(path: Path) -> str:
    """Escape specifiers; a path alone on its line takes no quotes."""
    _check_one_line(str(path))
    return str(path).replace("%", "%%")


def _check_one_line(text: str) -> None:
    if any(ord(char) < 32 for char in text):
        raise UsageError(
            f"{text!r} cannot be used in a service: it contains a control character.",
            hint="Move the home, or the folder in PATH, to a path without such characters.",
        )
