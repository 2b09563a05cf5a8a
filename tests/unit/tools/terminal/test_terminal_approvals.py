"""Every command is asked about and gets no more than was allowed."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from hermes.ports.approvals import ApprovalRequest, Decision, Isolation
from hermes.ports.sandbox import ProcessPermissions
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.tools.catalog import build_tools
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.terminal.isolation import denial_hint
from support.cases import cases
from support.fake_processes import FakeSandbox


class RecordingApprover:
    """Records every request and gives the same decision."""

    def __init__(self, decision: Decision) -> None:
        self.requests: list[ApprovalRequest] = []
        self._ruling = decision

    async def rule(self, request: ApprovalRequest) -> Decision:
        self.requests.append(request)
        return self._ruling


class TerminalHarness:
    def __init__(
        self, deps: ToolCollaborators, scope: Scope, wall: str, decision: Decision
    ) -> None:
        self.sandbox = FakeSandbox(wall)
        self.asked = RecordingApprover(decision)
        self._scope = scope
        self._tool = build_tools(structs.replace(deps, sandbox=self.sandbox))["terminal"]

    async def run(self, **args: object) -> dict[str, str]:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        ctx = ToolContext(self._scope, "c", progress, self.asked.rule, foreign=True)
        output = await self._tool.run(Raw(msgspec.json.encode(args)), ctx)
        part = output.parts[0]
        assert isinstance(part, Text)
        return msgspec.json.decode(part.text)


YES = Decision(allowed=True)


@pytest.mark.parametrize(
    ("wall", "escalate", "reaching"),
    [
        ("", "", Isolation.OPEN),
        ("", "network", Isolation.OPEN),
        ("bwrap", "", Isolation.INSIDE),
        ("bwrap", "network", Isolation.NETWORK),
        ("bwrap", "outside", Isolation.BEYOND),
    ],
)
async def test_request_names_the_isolation(
    deps: ToolCollaborators,
    scope: Scope,
    workspace: Path,
    wall: str,
    escalate: str,
    reaching: Isolation,
):
    harness = TerminalHarness(deps, scope, wall, YES)
    await harness.run(command="touch /x", escalate=escalate, reason="because")
    assert harness.asked.requests == [
        ApprovalRequest(  # noqa: S604 - says that it is for a shell, and runs nothing
            tool="terminal",
            action="touch /x",
            reaching=reaching,
            shell=True,
            folder=str(workspace),
            reason="because",
            foreign=True,
        )
    ]
    assert harness.sandbox.jobs[0].permissions == ProcessPermissions(
        writable=(str(workspace),),
        network=reaching is Isolation.NETWORK,
        unsandboxed=reaching is Isolation.BEYOND,
        isolation=wall,
    )


async def test_denied_command_is_not_run(deps: ToolCollaborators, scope: Scope):
    harness = TerminalHarness(deps, scope, "", Decision(allowed=False, why="Denied by the user."))
    with pytest.raises(ToolError, match=r"Denied by the user\."):
        await harness.run(command="touch /x")
    assert harness.sandbox.jobs == []


async def test_reason_of_the_decision_is_passed_on(deps: ToolCollaborators, scope: Scope):
    harness = TerminalHarness(
        deps, scope, "", Decision(allowed=True, why="Allowed for this session.")
    )
    assert (await harness.run(command="touch /x"))["approval"] == "Allowed for this session."


async def test_sandbox_denial_suggests_escalation(deps: ToolCollaborators, scope: Scope):
    walled = await TerminalHarness(deps, scope, "bwrap", YES).run(command="touch /x")
    assert 'escalate="outside"' in walled["note"]
    assert "note" not in await TerminalHarness(deps, scope, "", YES).run(command="touch /x")


@cases(
    ("output", "reaching", "escalation"),
    [
        ("touch: cannot touch '/x': Read-only file system", Isolation.INSIDE, "outside"),
        ("cat: /root/.ssh/id: Permission denied", Isolation.INSIDE, "outside"),
        ("curl: (6) Could not resolve host: a.b", Isolation.INSIDE, "network"),
        ("connect: Network is unreachable", Isolation.INSIDE, "network"),
        ("connect: Network is unreachable", Isolation.NETWORK, ""),
        ("touch: Read-only file system", Isolation.NETWORK, "outside"),
        ("touch: Read-only file system", Isolation.BEYOND, ""),
        ("1 test failed", Isolation.INSIDE, ""),
    ],
)
def test_denial_hints(output: str, reaching: Isolation, escalation: str):
    found = denial_hint(output, "bwrap", reaching)
    assert (f'escalate="{escalation}"' in found) if escalation else not found
