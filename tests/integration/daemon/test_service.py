"""The gateway as a service: its unit as systemd reads it, and what systemd hears of it."""

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

STANDIN = str(Path(__file__).parent / "standin")
ODD = 'a home with 100% of "quotes", $HOME and back\\slashes'
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


class Desk:
    """A person whose systemctl writes down what it is asked."""

    def __init__(self, root: Path, *, systemd: bool) -> None:
        self.root = root
        self.home = root / ODD
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

    def __call__(self, *words: str) -> CliResult:
        done = subprocess.run(
            [HERMES_PROGRAM, *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=TEST_TIMEOUT, check=False,
        )  # fmt: skip
        return CliResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    def asked(self) -> list[str]:
        """What systemctl was told to do since the last look; questions are left out."""
        file = self.root / "asked"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.removeprefix("--user ") for line in lines if " show " not in line]

    @property
    def unit(self) -> Path:
        return self.root / ".config" / "systemd" / "user" / "hermes-gateway.service"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, systemd=True)


def test_a_service_comes_and_goes(desk: Desk) -> None:
    installed = desk("gateway", "install")
    assert (installed.code, f"{desk.unit} written" in installed.out) == (0, True)
    assert desk.asked() == ["daemon-reload", "enable hermes-gateway.service"]
    assert "is up to date" in desk("gateway", "install", "--start").out
    assert desk.asked()[-1] == "restart hermes-gateway.service"

    started = desk("gateway", "start")
    assert (started.code, "(pid 4242, hermes-gateway.service)" in started.out) == (0, True)
    assert desk.asked() == ["start hermes-gateway.service"]
    (desk.root / "active").write_text("active\n")
    assert "hermes-gateway.service: active, enabled" in desk("gateway", "status", "--deep").out
    assert desk("gateway", "stop").code == 0
    assert desk.asked() == ["stop hermes-gateway.service"]
    assert desk("gateway", "restart").code == 0
    assert desk.asked() == ["restart hermes-gateway.service"]
    desk("gateway", "stop", "--force")
    assert desk.asked()[0].startswith("kill --signal=SIGKILL")

    (desk.root / "refuses").touch()
    refused = desk("gateway", "start")
    assert (refused.code, "no such unit" in refused.err) == (1, True)
    desk.asked()
    assert desk("gateway", "uninstall").code == 0
    assert desk.asked() == ["disable --now hermes-gateway.service", "daemon-reload"]
    assert not desk.unit.exists()
    assert "No service is installed" in desk("gateway", "uninstall").out


def test_without_systemd_the_way_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, systemd=False)
    ran = desk("gateway", "install")
    assert (ran.code, desk.unit.exists()) == (0, True)
    assert "systemctl --user enable --now hermes-gateway.service" in ran.out
    assert desk("gateway", "uninstall").code == 0
    assert not desk.unit.exists()


def test_the_service_of_another_home_is_left_alone(desk: Desk) -> None:
    desk("gateway", "install")
    other = desk.root / "other"
    other.mkdir()
    desk.env["HERMES_HOME"] = str(other)
    desk.asked()
    refused = desk("gateway", "install")
    assert (refused.code, "is the service of another home" in refused.err) == (2, True)
    assert desk("gateway", "uninstall").code == 2
    assert desk.asked() == []
    assert desk("gateway", "install", "--force").code == 0
    assert str(other) in desk.unit.read_text()


def test_a_profile_has_a_service_of_its_own(desk: Desk) -> None:
    desk("profile", "create", "work")
    desk("-p", "work", "gateway", "install")
    text = (desk.unit.parent / "hermes-gateway-work.service").read_text()
    assert '"--profile" "work" "gateway" "run"' in text
    assert desk("gateway", "install", "--print").out.startswith("# Written by")
    assert not desk.unit.exists()


@pytest.mark.parametrize("name", ["plain", ODD])
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


def test_systemd_hears_how_it_goes(desk: Desk, manager: tuple[socket.socket, str]) -> None:
    listening, path = manager
    env = desk.env | {"NOTIFY_SOCKET": path}
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
        # Whoever is watched over leaves the restart to the watcher.
        assert gateway.wait(TEST_TIMEOUT) == 75
    assert (desk.home / ".clean_shutdown").exists()
