"""Every command asks first, and goes no further than it was allowed to."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw, structs

from background import PlayedSandbox
from hermes.ports.counsel import Reaching, Ruling, Wish
from hermes.ports.sandbox import Reach
from hermes.ports.tool import ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.messages import Text
from hermes.schema.scope import Scope
from hermes.tools.catalog import ToolDeps, first_tools
from hermes.tools.terminal.held_back import hint

pytestmark = pytest.mark.anyio


class Asked:
    """Hears every wish and rules the same about all of them."""

    def __init__(self, ruling: Ruling) -> None:
        self.wishes: list[Wish] = []
        self._ruling = ruling

    async def rule(self, wish: Wish) -> Ruling:
        self.wishes.append(wish)
        return self._ruling


class Bench:
    def __init__(self, deps: ToolDeps, scope: Scope, wall: str, ruling: Ruling) -> None:
        self.sandbox = PlayedSandbox(wall)
        self.asked = Asked(ruling)
        self._scope = scope
        self._tool = first_tools(structs.replace(deps, sandbox=self.sandbox))["terminal"]

    async def run(self, **args: object) -> dict[str, str]:
        async def progress(text: str) -> None:
            raise AssertionError(text)

        ctx = ToolContext(self._scope, "c", progress, self.asked.rule, foreign=True)
        output = await self._tool.run(Raw(msgspec.json.encode(args)), ctx)
        part = output.parts[0]
        assert isinstance(part, Text)
        return msgspec.json.decode(part.text)


YES = Ruling(allowed=True)


@pytest.mark.parametrize(
    ("wall", "escalate", "reaching"),
    [
        ("", "", Reaching.OPEN),
        ("", "network", Reaching.OPEN),
        ("bwrap", "", Reaching.INSIDE),
        ("bwrap", "network", Reaching.NETWORK),
        ("bwrap", "outside", Reaching.BEYOND),
    ],
)
async def test_the_wish_says_how_far_it_goes(
    deps: ToolDeps, scope: Scope, workspace: Path, wall: str, escalate: str, reaching: Reaching
):
    bench = Bench(deps, scope, wall, YES)
    await bench.run(command="touch /x", escalate=escalate, reason="because")
    assert bench.asked.wishes == [
        Wish(  # noqa: S604 - says that it is for a shell, and runs nothing
            tool="terminal",
            action="touch /x",
            reaching=reaching,
            shell=True,
            folder=str(workspace),
            reason="because",
            foreign=True,
        )
    ]
    assert bench.sandbox.jobs[0].reach == Reach(
        writable=(str(workspace),),
        network=reaching is Reaching.NETWORK,
        beyond=reaching is Reaching.BEYOND,
        wall=wall,
    )


async def test_what_is_refused_is_not_run(deps: ToolDeps, scope: Scope):
    bench = Bench(deps, scope, "", Ruling(allowed=False, why="Denied by the user."))
    with pytest.raises(ToolError, match=r"Denied by the user\."):
        await bench.run(command="touch /x")
    assert bench.sandbox.jobs == []


async def test_what_was_said_about_it_is_passed_on(deps: ToolDeps, scope: Scope):
    bench = Bench(deps, scope, "", Ruling(allowed=True, why="Allowed for this session."))
    assert (await bench.run(command="touch /x"))["approval"] == "Allowed for this session."


async def test_a_failure_that_the_wall_caused_says_how_to_ask(deps: ToolDeps, scope: Scope):
    walled = await Bench(deps, scope, "bwrap", YES).run(command="touch /x")
    assert 'escalate="outside"' in walled["note"]
    assert "note" not in await Bench(deps, scope, "", YES).run(command="touch /x")


@pytest.mark.parametrize(
    ("output", "reaching", "said"),
    [
        ("touch: cannot touch '/x': Read-only file system", Reaching.INSIDE, "outside"),
        ("cat: /root/.ssh/id: Permission denied", Reaching.INSIDE, "outside"),
        ("curl: (6) Could not resolve host: a.b", Reaching.INSIDE, "network"),
        ("connect: Network is unreachable", Reaching.INSIDE, "network"),
        ("connect: Network is unreachable", Reaching.NETWORK, ""),
        ("touch: Read-only file system", Reaching.NETWORK, "outside"),
        ("touch: Read-only file system", Reaching.BEYOND, ""),
        ("1 test failed", Reaching.INSIDE, ""),
    ],
)
def test_hints(output: str, reaching: Reaching, said: str):
    found = hint(output, "bwrap", reaching)
    assert (f'escalate="{said}"' in found) if said else not found
