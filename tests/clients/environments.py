"""Install clients into folders of their own under a cache, once for each list of packages."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

INSTALL_TIMEOUT = 1200
DRIVERS = Path(__file__).parent / "drivers"


class NotInstalled(Exception):
    """A client cannot be installed here; the message says why."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hermes-clients"


class Environment:
    """The command that runs a driver, and the version of the client."""

    def __init__(self, command: Sequence[str], version: str, env: Mapping[str, str]) -> None:
        self.command = command
        self.version = version
        self.env = env


def python_environment(
    driver: str, packages: Sequence[str], without: Sequence[str] = ()
) -> Environment:
    """A virtual environment with the packages; `without` are dependencies that are not needed."""
    folder = _folder("python", [*packages, *without])
    python = folder / "bin" / "python"
    if not (folder / ".done").exists():
        uv = str(Path(sys.prefix) / "bin" / "uv")
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        overrides = folder / "overrides.txt"
        overrides.write_text("".join(f'{name}; python_version < "3"\n' for name in without))
        install = [uv, "pip", "install", "--quiet", "--python", str(python)]
        _run([*install, "--overrides", str(overrides), *packages])
        (folder / ".done").touch()
    name = packages[0].split("==")[0].split("[")[0]
    ask = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    version = _run([str(python), "-c", ask]).strip()
    return Environment([str(python), str(DRIVERS / driver)], version, {})


def node_environment(driver: str, packages: Sequence[str], program: str = "") -> Environment:
    """A folder with the packages; the driver is copied there, because Node looks beside it."""
    if shutil.which("npm") is None:
        raise NotInstalled("npm is missing")
    folder = _folder("node", packages)
    if not (folder / ".done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *packages], folder)
        (folder / ".done").touch()
    name = packages[0].rpartition("@")[0]
    about = json.loads((folder / "node_modules" / name / "package.json").read_text())
    if program:
        env = {"CLIENT_PROGRAM": str(folder / "node_modules" / ".bin" / program)}
        return Environment([sys.executable, str(DRIVERS / driver)], about["version"], env)
    for script in ("cases.mjs", driver):
        shutil.copy(DRIVERS / script, folder)
    return Environment(["node", str(folder / driver)], about["version"], {})


def _folder(kind: str, packages: Sequence[str]) -> Path:
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:8]
    name = packages[0].split("==")[0].split("[")[0].strip("@").replace("/", "-")
    return cache_folder() / f"{kind}-{name.partition('@')[0]}-{digest}"


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=INSTALL_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise NotInstalled(lines[-1] if lines else f"{command[0]} failed")
    return done.stdout.decode()
