"""A running gateway loads the drivers and packages of its enabled chat apps, and of no others."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.channels import MANIFESTS
from support.cli_process import TEST_TIMEOUT

PACKAGES = {"aiohttp_socks", "discord", "nio", "slack_sdk", "slixmpp", "vodozemac"}
PROBE = """
import sys
from hermes.cli.main import main
code = main(sys.argv[1:])
print(*sorted(sys.modules), sep="\\n")
sys.exit(code)
"""


def loaded_by_gateway(home: Path) -> set[str]:
    reading, writing = os.pipe()
    env = {"PATH": os.environ["PATH"], "HOME": str(home.parent), "HERMES_HOME": str(home)}
    command = [sys.executable, "-c", PROBE, "gateway", "run", "--quiet", "--ready-fd", str(writing)]
    with subprocess.Popen(
        command, env=env, pass_fds=[writing], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        os.close(writing)
        with os.fdopen(reading) as words:
            ready = any(line.startswith("READY=1") for line in words)
            child.send_signal(signal.SIGTERM)
        output, errors = child.communicate(timeout=TEST_TIMEOUT)
    assert ready, errors
    return set(output.splitlines())


@pytest.mark.slow
def test_gateway_loads_only_enabled_platforms(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(
        "platforms: {irc: {enabled: true, extra: {server: '127.0.0.1:1'}}}\n"
    )
    modules = loaded_by_gateway(home)
    drivers = {one.factory.partition(":")[0]: name for name, one in MANIFESTS.items()}
    assert {name for driver, name in drivers.items() if driver in modules} == {"irc"}
    assert {module.partition(".")[0] for module in modules} & PACKAGES == set()
