"""Sandboxed commands can call the program wherever it is installed."""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hermes
from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import TEST_TIMEOUT, FakeModelProcess
from support.cli_process import HermesCli as Installation

PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - private folders in the sandbox
CODE = "import hermes, sys\nprint('found', hermes.__file__)\nprint('runs', sys.executable)"
SCRIPT = Script(
    rules=[
        Rule(
            "call yourself",
            [
                Reply("", [Call("terminal", {"command": "hermes --version; touch made"})]),
                Reply("", [Call("execute_code", {"code": CODE})]),
                Reply("Both were called."),
            ],
        )
    ],
    models=("mock",),
)
STARTER = """#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from hermes.cli.main import main
sys.exit(main())
"""


@pytest.fixture(params=PRIVATE)
def folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder for a separate installation, with a name that needs quoting."""
    if not Path(request.param).is_dir():
        pytest.skip(f"{request.param} is not there")
    if any(Path(sys.prefix).is_relative_to(folder) for folder in PRIVATE):
        pytest.skip("its packages are in such a folder anyway")
    made = tempfile.mkdtemp(prefix="hermes tést ", dir=request.param)
    yield Path(made)
    shutil.rmtree(made)


def _install(folder: Path) -> Path:
    """Copy the program into a separate environment that uses the existing packages."""
    source = Path(hermes.__file__).parent
    shutil.copytree(source, folder / "src/hermes", symlinks=True)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    venv = folder / "venv"
    packages = venv / f"lib/python{version}/site-packages"
    packages.mkdir(parents=True)
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "here.pth").write_text("\n".join([str(folder / "src"), *sorted(paths)]))
    (venv / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\nversion = {version}\n")
    for name in ("python", "python3"):
        (venv / "bin" / name).symlink_to(f"{sys.base_prefix}/bin/python{version}")
    starter = venv / "bin/hermes"
    starter.write_text(STARTER.replace("{python}", str(venv / "bin/python")))
    starter.chmod(0o755)
    return starter


def test_command_can_call_hermes(folder: Path, model: FakeModelProcess) -> None:
    starter = _install(folder)
    one = Installation(folder, model.url)
    one.configure("approvals:\n  mode: off\n")
    done = subprocess.run(
        [starter, "-z", "call yourself"],
        cwd=one.work,
        env=one.env | {"PATH": f"{starter.parent}:{one.env['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
        check=False,
    )
    assert "Both were called." in done.stdout, done.stderr
    *_, last = model.requests("call yourself")
    outputs = [one["content"] for one in last["messages"] if one["role"] == "tool"]
    called, executed = [msgspec.json.decode(text) for text in outputs]
    assert called["exit_code"] == 0, called
    assert hermes.__version__ in called["output"]
    assert (one.work / "made").exists()
    assert f"found {folder}/src/hermes/__init__.py" in executed["output"], executed
    assert f"runs {folder}/venv/bin/python" in executed["output"]
