"""Approvals: writing outside the workspace, and reading the user's private files."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.kit.clock import SystemClock
from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.tool import ToolContext
from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.store.blobs import FileBlobs
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.search.ripgrep import find_rg
from hermes.tools.terminal.shell import find_shell

PATH = "/usr/local/bin:/usr/bin:/bin"
Call = Callable[..., Awaitable[dict[str, Any]]]


class RecordingApprover:
    """Decides all requests and records them."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []
        self.allows = False

    async def ask(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        allowed = self.allows or request.reaching is Isolation.INSIDE
        return Decision(allowed, "" if allowed else "The user said no.")


@pytest.fixture
def approver() -> RecordingApprover:
    return RecordingApprover()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for folder in ("work", ".ssh", "other"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".ssh" / "id").write_text("private words\n")
    (tmp_path / "other" / "a").write_text("one\n")
    return tmp_path


@pytest.fixture
def call(home: Path, approver: RecordingApprover) -> Iterator[Call]:
    with Spawner() as spawner:
        deps = ToolCollaborators(
            sandbox=LocalSandbox(spawner),
            blobs=FileBlobs(home / "blobs"),
            clock=SystemClock(),
            env=lambda _: {"PATH": PATH},
            redact=str,
            home=home,
            spill_folder=home / "spilled",
            shell=find_shell(PATH),
            rg=find_rg(PATH),
            private_files=[home / ".ssh"],
            tmp_folders=(),
        )
        tools = build_tools(deps)

        async def run(name: str, **args: Any) -> dict[str, Any]:
            async def progress(_: str) -> None:
                await anyio.lowlevel.checkpoint()

            scope = Scope("p", "s", "r", str(home / "work"))
            ctx = ToolContext(scope, "c", progress, approver.ask, foreign=True)
            output = await tools[name].run(Raw(msgspec.json.encode(args)), ctx)
            part = output.parts[0]
            assert isinstance(part, Text)
            return msgspec.json.decode(part.text)

        yield run


async def test_write_outside_the_workspace_needs_approval(
    call: Call, approver: RecordingApprover, home: Path
):
    with pytest.raises(ToolError, match=r"other/a was not written\. The user said no\."):
        await call("write_file", path="../other/a", content="two\n")
    patch = f"*** Begin Patch\n*** Update File: {home}/other/a\n@@\n-one\n+two\n*** End Patch"
    with pytest.raises(ToolError, match="The user said no"):
        await call("patch", patch=patch)
    assert (home / "other" / "a").read_text() == "one\n"
    assert [(request.tool, request.action, request.reaching) for request in approver.requests] == [
        ("write_file", f"{home}/other/a", Isolation.BEYOND),
        ("patch", f"{home}/other/a", Isolation.BEYOND),
    ]
    assert approver.requests[0].foreign
    assert [request.detail for request in approver.requests] == ["two\n", patch]
    with pytest.raises(ToolError, match="The user said no"):
        await call("patch", path="../other/a", old_string="one", new_string="two\nthree")
    assert approver.requests[-1].detail == "-one\n+two\n+three"
    approver.allows = True
    await call("write_file", path="../other/a", content="two\n")
    assert (home / "other" / "a").read_text() == "two\n"


async def test_approval_shows_the_target_of_a_link(
    call: Call, approver: RecordingApprover, home: Path
):
    (home / "work" / "notes").symlink_to(home / "other" / "a")
    with pytest.raises(ToolError, match="said no"):
        await call("write_file", path="notes", content="two\n")
    assert approver.requests[0].action == f"{home}/other/a"


async def test_write_in_the_workspace_is_announced(
    call: Call, approver: RecordingApprover, home: Path
):
    await call("write_file", path="mine", content="x")
    assert [(request.action, request.reaching) for request in approver.requests] == [
        (f"{home}/work/mine", Isolation.INSIDE)
    ]


@pytest.mark.parametrize("path", ["~/.ssh/id", "link", "hard", "../.ssh/id"])
async def test_private_files_need_approval(
    call: Call, approver: RecordingApprover, home: Path, path: str
):
    (home / "work" / "link").symlink_to(home / ".ssh" / "id")
    (home / "work" / "hard").hardlink_to(home / ".ssh" / "id")
    with pytest.raises(ToolError, match="one of the user's private files"):
        await call("read_file", path=path)
    assert approver.requests[-1].reaching is Isolation.BEYOND
    found = await call("search_files", pattern="private words", path=str(home))
    assert found["total_count"] == 0
    approver.allows = True
    assert (await call("read_file", path=path))["content"] == "1|private words"
