"""Packages are installed into the environment of the program, also where pip is missing."""

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from hermes.kit.installation import extra_requirements, install_command, pip_module


def test_installed_pip_is_used() -> None:
    assert pip_module() == ("-m", "pip")
    assert install_command("a>=1") == f"{sys.executable} -m pip install 'a>=1'"


@pytest.mark.slow
def test_pip_of_python_is_used_where_none_is_installed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    source = Path(PathFinder.find_spec("hermes").origin).parents[1]
    script = (
        f"import sys; sys.path.append({str(source)!r})\n"
        "from hermes.kit.installation import *\n"
        "print(install_command('a')); print(*pip_module(), sep='\\n')"
    )
    python = tmp_path / "bin" / "python"
    result = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    command, *module = result.stdout.splitlines()
    assert command == f"uv pip install --python {python} a"
    version = subprocess.run([python, "-P", *module, "--version"], capture_output=True, check=True)
    assert version.stdout.startswith(b"pip ")


def test_extra_is_named_by_its_packages() -> None:
    assert any(one.startswith("mcp>=") for one in extra_requirements("mcp"))
    assert extra_requirements("nothing") == []
