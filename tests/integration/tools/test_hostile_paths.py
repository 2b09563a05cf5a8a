"""Over a thousand attempts to leave the workspace, judged by the state of the files outside."""

import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.ports.tool import ToolContext
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.tools.files.documents import DocumentReader
from hermes.tools.files.editor import FileEditor, SeenFiles
from hermes.tools.files.patch import Patch
from hermes.tools.files.read import ReadDeps, ReadFile
from hermes.tools.files.write import WriteFile
from hermes.tools.paths import SessionPaths
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.search.tool import SearchDeps, SearchFiles
from hermes.tools.thread_runner import ThreadRunner
from support.hostile_paths import PLAIN, SECRET, TrapWorkspace

HOSTILE = "hostile-words-1234"
Try = Callable[..., Awaitable[str]]
ROUNDS = 400


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TrapWorkspace]:
    world = TrapWorkspace(tmp_path)
    yield world
    world.close()


@pytest.fixture
def attempt(world: TrapWorkspace) -> Iterator[Try]:
    """Return everything a call says, including errors. Every approval is denied."""
    places = SessionPaths(world.home, world.protected, temporary=())
    seen, aside = SeenFiles(), ThreadRunner()
    provenance = FileProvenance(SystemClock())
    editor = FileEditor(places, seen, aside, provenance)
    blobs = FileBlobs(world.root / "blobs")
    with Spawner() as spawner:
        sandbox = LocalSandbox(spawner)
        reading = ReadDeps(
            paths=places,
            seen=seen,
            blobs=blobs,
            redact=str,
            threads=aside,
            documents=DocumentReader(sandbox),
            provenance=provenance,
        )
        rg = find_rg("/usr/bin")
        searching = SearchDeps(
            sandbox=sandbox, paths=places, rg=rg, redact=str, provenance=provenance
        )
        tools = {
            "read_file": ReadFile(reading),
            "write_file": WriteFile(editor),
            "patch": Patch(editor, str),
            "search_files": SearchFiles(searching),
        }
        scope = Scope("p", "s", "r", str(world.work))

        async def progress(_: str) -> None:
            await anyio.lowlevel.checkpoint()

        async def run(name: str, **args: object) -> str:
            encoded = Raw(msgspec.json.encode(args))
            try:
                output = await tools[name].run(encoded, ToolContext(scope, "c", progress))
            except ToolError as error:
                return error.sentence
            return output.shown + "".join(p.text for p in output.parts if isinstance(p, Text))

        yield run


def envelope(*lines: str) -> str:
    return "\n".join(("*** Begin Patch", *lines, "*** End Patch"))


def calls(path: str) -> dict[str, tuple[str, dict[str, object]]]:
    """The same path through every tool."""
    changed = ["-canary-plain-5521", f"+{HOSTILE}"]
    return {
        "read": ("read_file", {"path": path}),
        "write": ("write_file", {"path": path, "content": HOSTILE}),
        "replace": ("patch", {"path": path, "old_string": "canary", "new_string": HOSTILE}),
        "add": ("patch", {"patch": envelope(f"*** Add File: {path}", f"+{HOSTILE}")}),
        "update": ("patch", {"patch": envelope(f"*** Update File: {path}", "@@", *changed)}),
        "delete": ("patch", {"patch": envelope(f"*** Delete File: {path}")}),
        "move": (
            "patch",
            {
                "patch": envelope(
                    "*** Update File: mine.txt",
                    f"*** Move to: {path}",
                    "@@",
                    "-mine",
                    f"+{HOSTILE}",
                )
            },
        ),
    }


def encodable(path: str) -> bool:
    return path.isprintable() or not any("\ud800" <= sign <= "\udfff" for sign in path)


def test_number_of_paths(world: TrapWorkspace):
    paths = world.paths()
    assert len(set(paths)) == len(paths) >= 1_000


@pytest.mark.parametrize(
    "tools", [["read"], ["write"], ["replace", "add", "update", "delete", "move"]]
)
async def test_no_path_leaves_the_workspace(world: TrapWorkspace, attempt: Try, tools: list[str]):
    """With several tools, the paths take turns."""
    paths = [path for path in world.paths() if encodable(path)]
    assert len(paths) >= 1_000
    before = world.state()
    around = {*Path("/").iterdir(), *Path("/etc").iterdir()}
    for number, path in enumerate(paths):
        (world.work / "mine.txt").write_text("mine\n")
        name, args = calls(path)[tools[number % len(tools)]]
        with anyio.fail_after(60):
            output = await attempt(name, **args)
        assert SECRET not in output, path
        if number % 50 == 0:
            assert world.state() == before, path
    assert world.state() == before
    assert {*Path("/").iterdir(), *Path("/etc").iterdir()} == around


async def test_search_finds_no_secret_under_any_name(world: TrapWorkspace, attempt: Try):
    paths = [path for path in world.paths() if encodable(path)]
    before = world.state()
    starts = ("hard", "dir-", "chain-to-0-1", "link-to", "kernel-", "../.hermes", "~/.hermes")
    chosen = [path for path in paths if path.startswith(starts)][::4]
    assert len(chosen) > 60
    for path in chosen:
        output = await attempt("search_files", pattern="canary-secret|canary-p", path=path)
        assert SECRET not in output, path
    whole = await attempt("search_files", pattern="canary-secret", path=str(world.root), limit=500)
    assert SECRET not in whole
    assert world.state() == before


async def test_paths_inside_still_work(world: TrapWorkspace, attempt: Try):
    """A guard that refuses everything would pass the other tests."""
    world.paths()
    (world.work / "inner").symlink_to("sub")
    assert "mine" in await attempt("read_file", path="self/sub/../mine.txt")
    await attempt("write_file", path="inner/new/a.txt", content="fine")
    assert (world.work / "sub/new/a.txt").read_text() == "fine"
    await attempt("patch", path="inner/new/a.txt", old_string="fine", new_string="finer")
    assert (world.work / "sub/new/a.txt").read_text() == "finer"
    assert PLAIN.strip() in await attempt("read_file", path="../../outside/plain.txt")


@contextmanager
def swapping(*swap: Callable[[], None]) -> Generator[None]:
    """Swap files as fast as possible in a thread."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            for one in swap:
                with suppress(OSError):
                    one()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        assert not thread.is_alive()


def becomes(path: Path, make: Callable[[Path], object]) -> Callable[[], None]:
    """Replace atomically, so that there always is a file."""

    def swap() -> None:
        spare = path.with_name(f".{path.name}.swap")
        with suppress(FileNotFoundError):
            spare.unlink()
        make(spare)
        spare.rename(path)

    return swap


@pytest.mark.parametrize("way", ["read", "write", "replace", "delete", "move", "add"])
@pytest.mark.parametrize("canary", ["closed", "open"])
async def test_file_replaced_by_a_link_while_opening(
    world: TrapWorkspace, attempt: Try, way: str, canary: str
):
    target = world.closed[2] if canary == "closed" else world.open[0]
    path = world.work / "f"
    before = world.state()
    swaps = (
        becomes(path, lambda spare: spare.write_text("canary of my own\n")),
        becomes(path, lambda spare: spare.symlink_to(target)),
        becomes(path, lambda spare: os.link(target, spare)),
        becomes(path, os.mkfifo),
    )
    output: list[str] = []
    with swapping(*swaps), anyio.fail_after(60):
        for _ in range(ROUNDS // 8):
            (world.work / "mine.txt").write_text("mine\n")
            name, args = calls("f")[way]
            output.append(await attempt(name, **args))
    assert not any(SECRET in one for one in output)
    assert world.state() == before


@pytest.mark.parametrize("way", ["read", "write", "replace", "delete", "move", "add"])
async def test_folder_replaced_by_a_link_while_walking(
    world: TrapWorkspace, attempt: Try, way: str
):
    vault, real = world.hermes / "vault", world.work / "real"
    real.mkdir()
    (real / "key").write_text("canary of my own\n")
    path, aside = world.work / "d", world.work / "aside"
    real.rename(path)
    before = world.state()

    def out() -> None:
        path.rename(aside)
        path.symlink_to(vault)

    def back() -> None:
        path.unlink()
        aside.rename(path)

    output: list[str] = []
    with swapping(out, back), anyio.fail_after(60):
        for _ in range(ROUNDS // 4):
            (world.work / "mine.txt").write_text("mine\n")
            name, args = calls("d/key")[way]
            output.append(await attempt(name, **args))
    assert not any(SECRET in one for one in output)
    assert world.state() == before
