"""The folder of weights and engine under the home, shared by all profiles."""

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from hermes.models.embedded.catalog import Weights, weights_catalog

FOLDER_NAME = "local-model"
ENGINE_PACKAGE = "xllamacpp"
ENGINE_REQUIREMENTS = Path(__file__).with_name("engine.txt")
_SCHEME = "file://"
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


@cache
def _engine_version() -> str:
    return hashlib.sha256(ENGINE_REQUIREMENTS.read_bytes()).hexdigest()[:12]


class ModelFolder(Struct, frozen=True):
    """`folder` need not exist; files under their final name are complete and verified."""

    folder: Path

    def weights_path(self, one: Weights) -> Path:
        return self.folder / one.file

    def partial_file(self, one: Weights) -> Path:
        """The path of an incomplete download."""
        return self.folder / f".{one.file}.partial"

    def has_weights(self, one: Weights) -> bool:
        """Check name and size: the digest was verified before the file got that name.

        A link does not count, since its target was never verified.
        """
        try:
            found = self.weights_path(one).lstat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == one.size

    def installed_models(self) -> Mapping[str, int | None]:
        """Return the installed models with their context windows."""
        return {one.name: one.window for one in weights_catalog() if self.has_weights(one)}

    @property
    def engine_folder(self) -> Path:
        """The folder of the engine; its name changes with the pinned version."""
        return self.folder / f"engine-{_engine_version()}"

    @property
    def has_engine(self) -> bool:
        return (self.engine_folder / ENGINE_PACKAGE).is_dir() or has_engine_package()

    @property
    def url(self) -> str:
        return f"{_SCHEME}{self.folder}"


def folder_at(url: str) -> ModelFolder:
    return ModelFolder(Path(url.removeprefix(_SCHEME)))


def folder_under(root: Path) -> ModelFolder:
    return ModelFolder(root / FOLDER_NAME)


def has_engine_package() -> bool:
    """Return whether the engine is installed as the extra `local`."""
    return find_spec(ENGINE_PACKAGE) is not None


def free_memory() -> int:
    """Estimate the bytes that a new process can use without swapping."""
    free = _available()
    limit, used = _read_number(_CGROUP / "memory.max"), _read_number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        return min(free, max(limit - used, 0))
    return free


def free_disk(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _available() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    # Not Linux: assume half of the physical memory.
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
