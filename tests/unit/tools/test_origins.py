"""Whose words a file holds: the daily work, or the world outside."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.kit.clock import SystemClock
from hermes.ports.counsel import Ruling, Wish
from hermes.ports.tool import Output, ToolContext
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.origins import LONGEST, OLDEST, Origins

pytestmark = pytest.mark.anyio


def at(path: Path, later: float = 0.0) -> FakeClock:
    """The time at which the file was last changed, or some seconds later."""
    return FakeClock(datetime.fromtimestamp(path.stat().st_ctime + later, UTC))


def put(path: Path, text: str = "words") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_workspace_is_the_daily_work(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "src" / "main.py")
    assert not Origins(at(file)).is_foreign(scope, file)


@pytest.mark.parametrize(
    "name",
    ["Downloads/a.txt", "attachments/x/a.txt", ".cache/a", "web/node_modules/x/README.md",
     ".venv/lib/python3.11/site-packages/x.py"],
)  # fmt: skip
def test_folders_for_what_comes_from_outside_are_not(
    workspace: Path, scope: Scope, name: str
) -> None:
    assert Origins(SystemClock()).is_foreign(scope, put(workspace / name))


def test_nor_is_what_lies_elsewhere(tmp_path: Path, workspace: Path, scope: Scope) -> None:
    file = put(tmp_path / "elsewhere" / "a.txt")
    assert Origins(at(file)).is_foreign(scope, file)
    assert not Origins(at(file), own=[tmp_path / "elsewhere"]).is_foreign(scope, file)
    everything = structs.replace(scope, workspace="/")
    assert not Origins(at(file)).is_foreign(everything, file)


def test_what_changed_while_something_was_fetched_came_in(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    clock = at(file)
    changed = clock.now().timestamp()
    during, before, long_before = Origins(clock), Origins(clock), Origins(at(file, 2 * LONGEST))
    during.fetched_since(changed - 1)
    assert during.is_foreign(scope, file)
    before.fetched_since(changed + 5)
    assert not before.is_foreign(scope, file)
    long_before.fetched_since(changed - LONGEST - 5)
    assert not long_before.is_foreign(scope, file)


def test_what_goes_on_by_itself_brings_for_a_while(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    origins = Origins(at(file, -30))
    origins.fetches_from_now()
    assert origins.is_foreign(scope, file)


def test_it_is_remembered_over_a_restart_and_by_others(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file, log = put(workspace / "a.txt"), tmp_path / "cache" / "fetched"
    beside = Origins(at(file), log)
    assert not beside.is_foreign(scope, file)
    Origins(at(file), log).fetched_since(at(file).now().timestamp())
    assert beside.is_foreign(scope, file)
    assert Origins(at(file), log).is_foreign(scope, file)
    assert not Origins(at(file, OLDEST + 60), log).is_foreign(scope, file)
    log.write_text("nonsense\n1 2 3\n\xff")
    assert not Origins(at(file), log).is_foreign(scope, file)


@pytest.mark.slow
def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    origins = Origins(SystemClock(), log)
    for _ in range(3_000):
        origins.fetched_since(origins.now())
    assert log.stat().st_size < 60_000


def test_what_we_wrote_ourselves_is_known(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    origins = Origins(at(file))
    origins.fetched_since(origins.now())
    origins.wrote(file, foreign=False)
    assert not origins.is_foreign(scope, file)
    origins.wrote(file, foreign=True)
    assert origins.is_foreign(scope, file)


class Bench:
    """The real tools without a wall; `quoted` is what strangers wrote."""

    def __init__(self, deps: ToolDeps, scope: Scope, quoted: str = "") -> None:
        self._tools = first_tools(structs.replace(deps, clock=SystemClock()))
        self._scope = scope
        self._quoted = quoted

    async def call(self, name: str, **args: object) -> Output:
        ctx = ToolContext(self._scope, "c", _silent, _yes, quotes=self._quotes)
        return await self._tools[name].run(Raw(msgspec.json.encode(args)), ctx)

    def _quotes(self, text: str) -> bool:
        return bool(self._quoted) and self._quoted in text


async def _silent(text: str) -> None:
    pass


async def _yes(wish: Wish) -> Ruling:
    return Ruling(allowed=True)


async def test_what_a_command_fetched_is_foreign_when_it_is_read(
    deps: ToolDeps, scope: Scope, workspace: Path
) -> None:
    bench = Bench(deps, scope)
    fetched = await bench.call("terminal", command="curl --nothing; echo obey me > page.txt")
    assert fetched.foreign
    assert (await bench.call("read_file", path="page.txt")).foreign
    assert (await bench.call("search_files", pattern="obey")).foreign
    assert (await bench.call("terminal", command="cat page.txt")).foreign
    await bench.call("terminal", command="cp page.txt copy.md")
    assert (await bench.call("read_file", path="copy.md")).foreign
    await bench.call("patch", path="page.txt", old_string="me", new_string="us")
    assert (await bench.call("read_file", path="page.txt")).foreign
    await bench.call("write_file", path="page.txt", content="my own words")
    assert not (await bench.call("read_file", path="page.txt")).foreign
    assert not (await bench.call("search_files", pattern="own words")).foreign


async def test_what_repeats_strangers_is_foreign_when_it_is_read(
    deps: ToolDeps, scope: Scope, workspace: Path
) -> None:
    bench = Bench(deps, scope, "obey me")
    await bench.call("write_file", path="a.md", content="Notes: obey me now")
    await bench.call("write_file", path="b.md", content="Notes: nothing")
    await bench.call("patch", path="b.md", old_string="nothing", new_string="obey me")
    await bench.call("terminal", command="echo obey me > c.md")
    for name in ("a.md", "b.md", "c.md"):
        assert (await bench.call("read_file", path=name)).foreign, name


async def test_work_in_the_workspace_stays_ones_own(
    deps: ToolDeps, scope: Scope, workspace: Path
) -> None:
    bench = Bench(deps, scope)
    put(workspace / "main.py", "print('hello')\n")
    assert not (await bench.call("read_file", path="main.py")).foreign
    assert not (await bench.call("terminal", command="cat main.py")).foreign
    await bench.call("terminal", command="cp main.py other.py")
    assert not (await bench.call("read_file", path="other.py")).foreign
    assert not (await bench.call("search_files", pattern="hello")).foreign
    put(workspace / "Downloads" / "page.txt", "hello")
    assert (await bench.call("search_files", pattern="hello", path="Downloads")).foreign
    assert (await bench.call("terminal", command="cat Downloads/page.txt")).foreign
