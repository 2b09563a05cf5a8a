"""The gateway as a systemd service: its unit as systemd reads it, and its notifications."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.app.service.systemd import make_unit, unit_name
from hermes.config.home import Home
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, CliResult, wait_for_data

STANDIN = str(Path(__file__).parent / "fake_service")
SPECIAL_NAME = 'a home with 100% of "quotes", $HOME and back\\slashes'
SYSTEMCTL = """\
#!/bin/sh
echo "$@" >> "$HOME/asked"
case "$*" in
    *Version*) echo Version=252 ;;
    *ActiveState*) cat "$HOME/active" 2>/dev/null || echo inactive ;;
    *UnitFileState*) echo enabled ;;
    *MainPID*) echo 4242 ;;
    *" start "*) test ! -e "$HOME/refuses" || { echo "no such unit" >&2; exit 5; } ;;
esac
"""


class ServiceHome:
    """A home whose systemctl records its calls."""

    def __init__(self, root: Path, *, systemd: bool) -> None:
        self.root = root
        self.home = root / SPECIAL_NAME
        self.home.mkdir()
        (root / "bin").mkdir()
        self.env = {
            "PATH": f"{root / 'bin'}:/usr/bin:/bin" if systemd else str(root / "bin"),
            "HOME": str(root),
            "LANG": "C.UTF-8",
            "HERMES_HOME": str(self.home),
            "PYTHONPATH": STANDIN,
        }
        if systemd:
            (root / "bin" / "systemctl").write_text(SYSTEMCTL)
            (root / "bin" / "systemctl").chmod(0o755)

    def __call__(self, *args: str) -> CliResult:
        done = subprocess.run(
            [HERMES_PROGRAM, *args], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=TEST_TIMEOUT, check=False,
        )  # fmt: skip
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def asked(self) -> list[str]:
        """Return systemctl's actions since the last call, without queries."""
        file = self.root / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.removeprefix("--user ") for line in lines if " show " not in line]

    @property
    def unit(self) -> Path:
        return self.root / ".config" / "systemd" / "user" / "hermes-gateway.service"


@pytest.fixture
def service_home(tmp_path: Path) -> ServiceHome:
    return ServiceHome(tmp_path, systemd=True)


def test_install_and_uninstall(service_home: ServiceHome) -> None:
    installed = service_home("gateway", "install")
    assert (installed.code, f"{service_home.unit} written" in installed.out) == (0, True)
    assert service_home.asked() == ["daemon-reload", "enable hermes-gateway.service"]
    assert "is up to date" in service_home("gateway", "install", "--start").out
    assert service_home.asked()[-1] == "restart hermes-gateway.service"

    started = service_home("gateway", "start")
    assert (started.code, "(pid 4242, hermes-gateway.service)" in started.out) == (0, True)
    assert service_home.asked() == ["start hermes-gateway.service"]
    (service_home.root / "active").write_text("active\n")
    assert (
        "hermes-gateway.service: active, enabled" in service_home("gateway", "status", "--deep").out
    )
    assert service_home("gateway", "stop").code == 0
    assert service_home.asked() == ["stop hermes-gateway.service"]
    assert service_home("gateway", "restart").code == 0
    assert service_home.asked() == ["restart hermes-gateway.service"]
    service_home("gateway", "stop", "--force")
    assert service_home.asked()[0].startswith("kill --signal=SIGKILL")

    (service_home.root / "refuses").touch()
    refused = service_home("gateway", "start")
    assert (refused.code, "no such unit" in refused.err) == (1, True)
    service_home.asked()
    assert service_home("gateway", "uninstall").code == 0
    assert service_home.asked() == ["disable --now hermes-gateway.service", "daemon-reload"]
    assert not service_home.unit.exists()
    assert "No service is installed" in service_home("gateway", "uninstall").out


@pytest.mark.parametrize("action", ["restart", "run --replace", "install --start"])
def test_service_is_not_stopped_if_the_settings_are_wrong(
    service_home: ServiceHome, action: str
) -> None:
    service_home("gateway", "install")
    (service_home.root / "active").write_text("active\n")
    (service_home.home / "config.yaml").write_text("agent: [\n")
    refused = service_home("gateway", *action.split())
    assert (refused.code, "invalid YAML" in refused.err) == (78, True)
    calls = service_home.asked()
    assert not [one for one in calls if one.startswith(("stop", "restart"))]


def test_missing_systemd_is_explained(tmp_path: Path) -> None:
    service_home = ServiceHome(tmp_path, systemd=False)
    ran = service_home("gateway", "install")
    assert (ran.code, service_home.unit.exists()) == (0, True)
    assert "systemctl --user enable --now hermes-gateway.service" in ran.out
    assert service_home("gateway", "uninstall").code == 0
    assert not service_home.unit.exists()


def test_service_of_another_home_is_not_changed(service_home: ServiceHome) -> None:
    service_home("gateway", "install")
    other = service_home.root / "other"
    other.mkdir()
    service_home.env["HERMES_HOME"] = str(other)
    service_home.asked()
    refused = service_home("gateway", "install")
    assert (refused.code, "belongs to another home" in refused.err) == (2, True)
    assert service_home("gateway", "uninstall").code == 2
    assert service_home.asked() == []
    assert service_home("gateway", "install", "--force").code == 0
    assert str(other) in service_home.unit.read_text()


def test_profile_has_its_own_service(service_home: ServiceHome) -> None:
    service_home("profile", "create", "work")
    service_home("-p", "work", "gateway", "install")
    text = (service_home.unit.parent / "hermes-gateway-work.service").read_text()
    assert '"--profile" "work" "gateway" "run"' in text
    assert service_home("gateway", "install", "--print").out.startswith("# Written by")
    assert not service_home.unit.exists()


@pytest.mark.parametrize("name", ["plain", SPECIAL_NAME])
def test_systemd_understands_the_unit(tmp_path: Path, name: str) -> None:
    analyze = shutil.which("systemd-analyze")
    home = Home(tmp_path / name, tmp_path / name)
    home.path.mkdir()
    program = tmp_path / name / "python"
    program.symlink_to("/bin/true")
    env = {"HOME": str(home.path), "PATH": f"{home.path}/bin:/usr/bin"}
    unit = make_unit(home, env, [str(program), "-m", "hermes", "100%", "$x"], 60)
    assert "TimeoutStopSec=160\n" in unit.text
    if analyze is None:
        assert unit.text.count("[Service]") == 1
        return
    file = tmp_path / unit_name(home)
    file.write_text(unit.text)
    done = subprocess.run(
        [analyze, "--user", "verify", str(file)],
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, ours) == (0, [])


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        yield listening, path


def test_systemd_is_notified(service_home: ServiceHome, manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    env = service_home.env | {"NOTIFY_SOCKET": path}
    with subprocess.Popen(
        [HERMES_PROGRAM, "gateway", "run"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as gateway:
        assert wait_for_data(listening.fileno()) == b"STATUS=connecting telegram"
        assert wait_for_data(listening.fileno()) == b"STATUS=2 platforms\nREADY=1"
        gateway.send_signal(signal.SIGUSR1)
        assert wait_for_data(listening.fileno()) == b"STOPPING=1"
        # Under systemd, the restart is left to systemd.
        assert gateway.wait(TEST_TIMEOUT) == 75
    assert (service_home.home / ".clean_shutdown").exists()
