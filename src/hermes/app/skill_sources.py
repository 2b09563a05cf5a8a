"""Fetch skills from a folder, an archive or a git repository (cloned in a sandbox)."""

import re
import shutil
import tempfile
from pathlib import Path

from msgspec import Struct

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.clock import Clock
from hermes.kit.files import read_regular_file
from hermes.kit.text import one_line
from hermes.learning.skills.document import InvalidSkill
from hermes.learning.skills.installer import (
    MAX_ARCHIVE_BYTES,
    SkillPackage,
    find_packages,
    read_archive,
    read_folder,
)
from hermes.ports.sandbox import ProcessPermissions, ProcessSpec, Sandbox
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import UsageError

TIMEOUT = 120.0
_REMOTE = re.compile(r"(https?://|ssh://|git://|file://|[\w.-]+@[\w.-]+:)[^\s]+")
_GIT_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.symlinks=true", "gc.auto=0",
    "protocol.ext.allow=never", "submodule.recurse=false", "core.protectNTFS=true",
    "filter.lfs.smudge=", "filter.lfs.process=", "filter.lfs.required=false",
)  # fmt: skip


class SkillFetchDeps(Struct, frozen=True, kw_only=True):
    home: Home
    env: Env
    config: Config
    clock: Clock


def is_remote(source: str) -> bool:
    return _REMOTE.fullmatch(source) is not None


async def fetch_skill(parts: SkillFetchDeps, source: str, path: str = "") -> SkillPackage:
    """Read one skill into memory; `path` selects one of several. Raises `InvalidSkill`."""
    files = await _clone_and_read(parts, source) if is_remote(source) else _read_local(source)
    return choose_package(find_packages(files), path)


def normalized_source(source: str) -> str:
    """The source as stored: absolute, so that it is found from any folder."""
    return source if is_remote(source) else str(Path(source).expanduser().absolute())


def _read_local(source: str) -> dict[str, bytes]:
    path = Path(source).expanduser()
    if path.is_dir():
        return read_folder(path)
    if not path.is_file():
        raise UsageError(
            f"{source} is not a folder, an archive or a repository URL.",
            hint="For example: hermes skills install ~/skills/tea",
        )
    try:
        return read_archive(read_regular_file(path, MAX_ARCHIVE_BYTES), path.name)
    except OSError as error:
        raise InvalidSkill(f"Cannot read {source}: {error.strerror}.") from error


def choose_package(found: dict[str, SkillPackage], path: str) -> SkillPackage:
    name = path.strip("/")
    matches = [
        package for folder, package in found.items() if not name or name in {folder, package.name}
    ]
    if len(matches) == 1:
        return matches[0]
    if not found:
        raise InvalidSkill("It contains no SKILL.md.")
    names = ", ".join(sorted(package.name for package in found.values()))
    if not matches:
        raise InvalidSkill(f"It contains no skill {name}.", hint=f"It contains: {names}.")
    if not name:
        raise InvalidSkill(
            f"It contains {len(matches)} skills: {names}.", hint="Choose one with --path NAME."
        )
    folders = ", ".join(sorted(folder for folder, package in found.items() if package in matches))
    raise InvalidSkill(
        f"It contains {len(matches)} skills named {name}.",
        hint=f"Choose a folder with --path FOLDER: {folders}.",
    )


async def _clone_and_read(parts: SkillFetchDeps, address: str) -> dict[str, bytes]:
    """Clone and read; hooks, filters and submodules are never run."""
    git = shutil.which("git", path=parts.env.get("PATH", ""))
    if git is None:
        raise UsageError(
            "Fetching a repository requires git, which is not installed.",
            hint="Install git, or download an archive and install that.",
        )
    parts.home.cache.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=parts.home.cache, prefix="skill-") as folder,
        Spawner() as spawner,
    ):
        terminal = parts.config.terminal
        local = Sandboxes(SandboxDeps(parts.home, parts.env, terminal, spawner, parts.clock)).local
        await _clone(local, git, address, Path(folder), parts.env)
        return read_folder(Path(folder) / "repository")


async def _clone(sandbox: Sandbox, git: str, address: str, folder: Path, env: Env) -> None:
    settings = [word for one in _GIT_SETTINGS for word in ("-c", one)]
    flags = ("--depth=1", "--single-branch", "--no-tags", "--quiet", "--template=")
    spec = ProcessSpec(
        argv=(git, *settings, "clone", *flags, "--", address, "repository"),
        cwd=str(folder),
        env={
            "PATH": env.get("PATH", ""),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
        },
        timeout=TIMEOUT,
        permissions=ProcessPermissions(writable=(str(folder),), network=True),
    )
    result = await sandbox.run(spec)
    if result.exit_code != 0:
        output = one_line(result.output.decode("utf-8", "replace"), 300)
        raise InvalidSkill(f"git could not fetch {address}: {output}")
