"""Every command asks first, and goes no further than it was allowed to."""

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
from hermes.tools.catalog import ToolDeps, build_tools
from hermes.tools.terminal.isolation import denial_hint
from support.fake_processes import FakeSandbox

pytestmark = pytest.mark.anyio


class Asked:
    """Hears every wish and rules the same about all of them."""

    def __init__(self, decision: Decision) -> None:
        self.wishes: list[ApprovalRequest] = []
        self._ruling = decision

    async def rule(self, wish: ApprovalRequest) -> Decision:
        self.wishes.append(wish)
        return self._ruling


class Bench:
    def __init__(self, deps: ToolDeps, scope: Scope, wall: str, decision: Decision) -> None:
        self.sandbox = FakeSandbox(wall)
        self.asked = Asked(decision)
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
async def test_the_wish_says_how_far_it_goes(
    deps: ToolDeps, scope: Scope, workspace: Path, wall: str, escalate: str, reaching: Isolation
):
    bench = Bench(deps, scope, wall, YES)
    await bench.run(command="touch /x", escalate=escalate, reason="because")
    assert bench.asked.wishes == [
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
    assert bench.sandbox.jobs[0].reach == ProcessPermissions(
        writable=(str(workspace),),
        network=reaching is Isolation.NETWORK,
        beyond=reaching is Isolation.BEYOND,
        wall=wall,
    )


async def test_what_is_refused_is_not_run(deps: ToolDeps, scope: Scope):
    bench = Bench(deps, scope, "", Decision(allowed=False, why="Denied by the user."))
    with pytest.raises(ToolError, match=r"Denied by the user\."):
        await bench.run(command="touch /x")
    assert bench.sandbox.jobs == []


async def test_what_was_said_about_it_is_passed_on(deps: ToolDeps, scope: Scope):
    bench = Bench(deps, scope, "", Decision(allowed=True, why="Allowed for this session."))
    assert (await bench.run(command="touch /x"))["approval"] == "Allowed for this session."


async def test_a_failure_that_the_wall_caused_says_how_to_ask(deps: ToolDeps, scope: Scope):
    walled = await Bench(deps, scope, "bwrap", YES).run(command="touch /x")
    assert 'escalate="outside"' in walled["note"]
    assert "note" not in await Bench(deps, scope, "", YES).run(command="touch /x")


@pytest.mark.parametrize(
    ("output", "reaching", "said"),
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
def test_hints(output: str, reaching: Isolation, said: str):
    found = denial_hint(output, "bwrap", reaching)
    assert (f'escalate="{said}"' in found) if said else not found
