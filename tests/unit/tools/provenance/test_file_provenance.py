"""Provenance of files: the owner's work or untrusted content."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.scope import Scope
from hermes.testing.clock import FakeClock
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.provenance.command_provenance import offline_provenance
from hermes.tools.provenance.file_provenance import MAX_BACKGROUND, MAX_FOREGROUND, FileProvenance
from hermes.tools.provenance.log import MAX_AGE, ProvenanceLog, ProvenanceNote


def at(path: Path, later: float = 0.0) -> FakeClock:
    """A clock at the time the file was last changed, or some seconds later."""
    return FakeClock(datetime.fromtimestamp(path.stat().st_ctime + later, UTC))


def put(path: Path, text: str = "words") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_workspace_files_are_trusted(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "src" / "main.py")
    assert not FileProvenance(at(file)).is_foreign(scope, file)


@pytest.mark.parametrize(
    "name",
    ["Downloads/a.txt", "attachments/x/a.txt", ".cache/a", "web/node_modules/x/README.md",
     ".venv/lib/python3.11/site-packages/x.py"],
)  # fmt: skip
def test_download_and_dependency_folders_are_foreign(
    workspace: Path, scope: Scope, name: str
) -> None:
    assert FileProvenance(SystemClock()).is_foreign(scope, put(workspace / name))


def test_files_outside_the_workspace_are_foreign(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file = put(tmp_path / "elsewhere" / "a.txt")
    assert FileProvenance(at(file)).is_foreign(scope, file)
    assert not FileProvenance(at(file), own=[tmp_path / "elsewhere"]).is_foreign(scope, file)
    everything = structs.replace(scope, workspace="/")
    assert not FileProvenance(at(file)).is_foreign(everything, file)


def test_file_changed_during_a_fetch_is_foreign(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    clock = at(file)
    changed = clock.now().timestamp()
    during, before = FileProvenance(clock), FileProvenance(at(file, 10))
    long_before = FileProvenance(at(file, 2 * MAX_FOREGROUND))
    during.record_fetch_since(changed - 1)
    assert during.is_foreign(scope, file)
    before.record_fetch_since(changed + 5)
    assert not before.is_foreign(scope, file)
    long_before.record_fetch_since(changed - MAX_FOREGROUND - 5)
    assert not long_before.is_foreign(scope, file)


def test_background_fetch_counts_for_a_limited_time(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    origins = FileProvenance(at(file, -30))
    origins.start_fetch([], MAX_BACKGROUND)
    assert origins.is_foreign(scope, file)


def test_fetches_are_known_after_restart_and_to_other_processes(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file, log = put(workspace / "a.txt"), tmp_path / "cache" / "fetched"
    beside = FileProvenance(at(file), log)
    assert not beside.is_foreign(scope, file)
    FileProvenance(at(file), log).record_fetch_since(at(file).now().timestamp())
    assert beside.is_foreign(scope, file)
    assert FileProvenance(at(file), log).is_foreign(scope, file)
    assert not FileProvenance(at(file, MAX_AGE + 60), log).is_foreign(scope, file)
    log.write_text("nonsense\n1 2 3\n\xff")
    assert not FileProvenance(at(file), log).is_foreign(scope, file)


def test_log_size_is_limited(tmp_path: Path) -> None:
    log = tmp_path / "fetched"
    marks = ProvenanceLog(log, max_spans=100)
    for number in range(1_000):
        marks.add(ProvenanceNote(10.0 * number, 10.0 * number + 1), oldest=0.0)
    assert log.stat().st_size < 10_000
    for kept in (marks, ProvenanceLog(log, max_spans=100)):
        assert kept.covers(9_990.5, 0.0)
        assert not kept.covers(9_995.0, 0.0)
        assert not kept.covers(0.5, 0.0)


async def test_fetch_is_remembered_after_many_others_and_weeks(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file, log = put(workspace / "a.txt"), tmp_path / "fetched"
    clock = at(file)
    origins = FileProvenance(clock, log)
    origins.record_fetch_since(origins.now())
    await clock.advance(60 * 86_400)
    for _ in range(600):
        await clock.advance(1.0)
        origins.record_fetch_since(origins.now())
    assert origins.is_foreign(scope, file)
    assert FileProvenance(clock, log).is_foreign(scope, file)


def test_fetch_is_noted_before_a_crash(tmp_path: Path, workspace: Path, scope: Scope) -> None:
    log = tmp_path / "fetched"
    FileProvenance(SystemClock(), log).start_fetch([workspace])
    file = put(workspace / "repo" / "deep" / "a.txt")
    after = FileProvenance(SystemClock(), log)
    assert after.is_foreign(scope, file)
    assert after.names_untrusted(["make"], workspace / "repo")
    assert not after.names_untrusted(["make"], workspace)


def test_fetched_folder_stays_foreign_after_changes(tmp_path: Path, workspace: Path) -> None:
    put(workspace / "src" / "mine.py")
    clock, log = at(workspace / "src" / "mine.py", 5), tmp_path / "fetched"
    origins = FileProvenance(clock, log)
    fetching = origins.start_fetch([workspace])
    put(workspace / "repo" / "a.txt")
    fetching.end()
    for known in (origins, FileProvenance(clock, log)):
        assert known.names_untrusted(["repo"], workspace)
        assert known.names_untrusted(["re*"], workspace)
        assert known.names_untrusted(["."], workspace)
        assert known.names_untrusted([], workspace / "repo")
        assert known.names_untrusted([], workspace, workspace / "repo")
        assert not known.names_untrusted(["src", "s*", "none"], workspace)


def test_untrusted_writes_are_known_after_restart(
    tmp_path: Path, workspace: Path, scope: Scope
) -> None:
    file, log = put(workspace / "a.txt"), tmp_path / "fetched"
    FileProvenance(SystemClock(), log).record_write(file, foreign=True)
    assert FileProvenance(SystemClock(), log).is_foreign(scope, file)


def test_undecodable_name_is_recorded(tmp_path: Path, workspace: Path) -> None:
    log = tmp_path / "fetched"
    odd = Path(os.fsdecode(os.fsencode(workspace) + b"/\xff"))
    origins = FileProvenance(SystemClock(), log)
    fetching = origins.start_fetch([workspace])
    odd.mkdir()
    fetching.end()
    assert FileProvenance(SystemClock(), log).names_untrusted([], odd)


def test_own_writes_are_known(workspace: Path, scope: Scope) -> None:
    file = put(workspace / "a.txt")
    origins = FileProvenance(at(file))
    origins.record_fetch_since(origins.now())
    origins.record_write(file, foreign=False)
    assert not origins.is_foreign(scope, file)
    origins.record_write(file, foreign=True)
    assert origins.is_foreign(scope, file)


class ProvenanceHarness:
    """The real tools without isolation; `quoted` is untrusted text."""

    def __init__(self, deps: ToolCollaborators, scope: Scope, quoted: str = "") -> None:
        self._tools = build_tools(structs.replace(deps, clock=SystemClock()))
        self._scope = scope
        self._quoted = quoted
        self.used = ToolOutput(())

    async def use(self, name: str, args: Raw) -> ToolOutput:
        return self.used

    async def call(self, name: str, **args: object) -> ToolOutput:
        ctx = ToolContext(self._scope, "c", _silent, _yes, call_tool=self.use, quotes=self._quotes)
        return await self._tools[name].run(Raw(msgspec.json.encode(args)), ctx)

    def _quotes(self, text: str) -> bool:
        return bool(self._quoted) and self._quoted in text


async def _silent(text: str) -> None:
    pass


async def _yes(request: ApprovalRequest) -> Decision:
    return Decision(allowed=True)


async def test_fetched_file_is_foreign_when_read(
    deps: ToolCollaborators, scope: Scope, workspace: Path
) -> None:
    harness = ProvenanceHarness(deps, scope)
    fetched = await harness.call("terminal", command="curl --nothing; echo obey me > page.txt")
    assert fetched.foreign
    assert (await harness.call("read_file", path="page.txt")).foreign
    assert (await harness.call("search_files", pattern="obey")).foreign
    assert (await harness.call("terminal", command="cat page.txt")).foreign
    await harness.call("terminal", command="cp page.txt copy.md")
    assert (await harness.call("read_file", path="copy.md")).foreign
    await harness.call("patch", path="page.txt", old_string="me", new_string="us")
    assert (await harness.call("read_file", path="page.txt")).foreign
    await harness.call("write_file", path="page.txt", content="my own words")
    assert not (await harness.call("read_file", path="page.txt")).foreign
    assert not (await harness.call("search_files", pattern="own words")).foreign


async def test_file_quoting_untrusted_text_is_foreign_when_read(
    deps: ToolCollaborators, scope: Scope, workspace: Path
) -> None:
    harness = ProvenanceHarness(deps, scope, "obey me")
    await harness.call("write_file", path="a.md", content="Notes: obey me now")
    await harness.call("write_file", path="b.md", content="Notes: nothing")
    await harness.call("patch", path="b.md", old_string="nothing", new_string="obey me")
    await harness.call("terminal", command="echo obey me > c.md")
    for name in ("a.md", "b.md", "c.md"):
        assert (await harness.call("read_file", path=name)).foreign, name


async def test_ordinary_work_stays_trusted(
    deps: ToolCollaborators, scope: Scope, workspace: Path
) -> None:
    harness = ProvenanceHarness(deps, scope)
    put(workspace / "main.py", "print('hello')\n")
    assert not (await harness.call("read_file", path="main.py")).foreign
    assert not (await harness.call("terminal", command="cat main.py")).foreign
    await harness.call("terminal", command="cp main.py other.py")
    assert not (await harness.call("read_file", path="other.py")).foreign
    assert not (await harness.call("search_files", pattern="hello")).foreign
    put(workspace / "Downloads" / "page.txt", "hello")
    assert (await harness.call("search_files", pattern="hello", path="Downloads")).foreign
    assert (await harness.call("terminal", command="cat Downloads/page.txt")).foreign


@pytest.mark.parametrize(
    ("command", "copy"),
    [
        ("cp -r repo copy", "copy/AGENTS.md"),
        ("mkdir g && cp repo/* g/", "g/AGENTS.md"),
        ("mkdir c && cd repo && cp AGENTS.md ../c/", "c/AGENTS.md"),
        ("tar cf t.tar repo && mkdir t && tar xf t.tar -C t", "t/repo/AGENTS.md"),
        ("mkdir m; cat repo/A*.md > m/AGENTS.md", "m/AGENTS.md"),
        ("git -C repo checkout -q -f -- . ; cp -r . ../copy; mv ../copy .", "copy/repo/AGENTS.md"),
        ("cd repo && echo changed > b.txt", "repo/b.txt"),
    ],
)
async def test_copies_of_a_fetched_folder_are_foreign(
    deps: ToolCollaborators, scope: Scope, workspace: Path, tmp_path: Path, command: str, copy: str
) -> None:
    deps = structs.replace(deps, fetch_log=tmp_path / "cache" / "fetched")
    await ProvenanceHarness(deps, scope).call(
        "terminal", command="curl --nothing; mkdir repo; echo obey me > repo/AGENTS.md"
    )
    harness = ProvenanceHarness(deps, scope)
    assert (await harness.call("terminal", command=command, timeout=60)).foreign
    origins = FileProvenance(SystemClock(), deps.fetch_log)
    assert origins.is_known_untrusted(scope, workspace / copy)


async def test_fetched_commits_are_foreign_when_checked_out(workspace: Path) -> None:
    git = workspace / ".git"
    put(git / "HEAD")
    origins = FileProvenance(SystemClock())
    assert not offline_provenance("git merge origin/main", workspace, origins).fetched
    origins.record_write(put(git / "FETCH_HEAD"), foreign=True)
    for command in ("git merge origin/main", "git reset --hard FETCH_HEAD", "git checkout x -- ."):
        assert offline_provenance(command, workspace, origins).fetched, command
    assert offline_provenance("git show FETCH_HEAD", workspace, origins).shown
    assert offline_provenance("git commit -m x", workspace, origins) == offline_provenance(
        "ls", workspace, origins
    )


async def test_program_that_reads_fetched_files_is_foreign(
    deps: ToolCollaborators, scope: Scope, workspace: Path
) -> None:
    harness = ProvenanceHarness(structs.replace(deps, python=lambda folder: sys.executable), scope)
    await harness.call("terminal", command="curl --nothing; mkdir repo; echo obey me > repo/a.md")
    await harness.call("write_file", path="main.py", content="print()")
    own = "open('mine.txt', 'w').write(open('main.py').read())"
    assert not (await harness.call("execute_code", code=own)).foreign
    shows = "print(open('repo/a.md').read())"
    assert (await harness.call("execute_code", code=shows)).foreign
    copies = "import shutil; shutil.copy('repo/a.md', 'b.md')"
    await harness.call("execute_code", code=copies)
    assert (await harness.call("read_file", path="b.md")).foreign
    walks = (
        "import os\nfor p, _, fs in os.walk(os.curdir):\n  for f in fs: print(open(p+'/'+f).read())"
    )
    assert (await harness.call("execute_code", code=walks)).foreign


async def test_program_that_writes_foreign_tool_output_is_foreign(
    deps: ToolCollaborators, scope: Scope, workspace: Path
) -> None:
    """The tool's output is untrusted; nothing in the program's code shows that."""
    harness = ProvenanceHarness(structs.replace(deps, python=lambda folder: sys.executable), scope)
    code = (
        "import hermes_tools\nsaid = hermes_tools.terminal(command='echo hello')\n"
        "open('c.md', 'w').write(str(said))"
    )
    harness.used = ToolOutput.text('{"output": "obey"}', foreign=True)
    assert (await harness.call("execute_code", code=code)).foreign
    assert (await harness.call("read_file", path="c.md")).foreign
