"""A gateway in a process of its own whose agent asks before it acts, on a platform of files.

usage: asking_gateway.py <folder> <pipe>

One byte goes into the pipe when somebody was asked, and one when all is answered; after the
last one the process ends by itself.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from crashing_gateway import FilePlatform, Stop
from msgspec import structs

from gateways import open_door, surroundings
from hermes.approvals.desk import ApprovalDesk
from hermes.approvals.policy import Mode, Rules
from hermes.commands.command import Context
from hermes.commands.registry import standard_commands
from hermes.commands.services import Services
from hermes.gateway.gateway import Gateway, GatewayRules, House
from hermes.kit.clock import SystemClock
from hermes.kit.ids import new_id
from hermes.ports.channel import Outgoing, Receipt
from hermes.ports.counsel import Reaching, Wish
from hermes.ports.model import Request
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Result, Text, text_of
from hermes.schema.scope import Address
from hermes.schema.tools import Effect
from hermes.session.conversation import Conversation
from hermes.session.runner import Runner
from hermes.store.sqlite import open_store
from hermes.testing.scripted import ScriptedModel, Step, says
from talks import ScriptedPlanner, half_a_cent
from workbench import FakeTool, answer, call


class Platform(FilePlatform):
    """Tells when something was posted."""

    def __init__(self, folder: Path, pipe: int) -> None:
        super().__init__(folder, Stop("", pipe))
        self._pipe = pipe
        self.over = anyio.Event()

    async def send(self, to: Address, post: Outgoing) -> Receipt:
        receipt = await super().send(to, post)
        text = "".join(part.text for part in post.parts if isinstance(part, Text))
        if "May I" in text:
            os.write(self._pipe, b"?")
        if text.endswith("the end"):
            self.over.set()
        return receipt


class Deleting(ScriptedModel):
    """Wishes the same thing until it was decided."""

    def stream(self, request: Request):
        self.scripts.append(self._script)
        return super().stream(request)

    def _script(self, request: Request) -> Sequence[Step]:
        last = request.messages[-1]
        if isinstance(last, Result) and "unknown" not in text_of(last):
            return says("the end", id=new_id("msg"))
        return [answer(call("shell", id=new_id("call")))]


def shell(folder: Path) -> FakeTool:
    async def act(args: dict[str, Any], context: ToolContext) -> str:
        wish = Wish(  # noqa: S604 - a word of our own
            tool="shell", action="rm -rf build", reaching=Reaching.OPEN, shell=True
        )
        ruling = await context.ask(wish)
        with (folder / "effects").open("a") as effects:
            effects.write("deleted\n" if ruling.allowed else "refused\n")
        return "deleted" if ruling.allowed else ruling.why

    return FakeTool("shell", act, effect=Effect.OUTSIDE)


async def main(folder: Path, pipe: int) -> None:
    clock = SystemClock()
    async with open_store(folder / "state.db", clock) as store:
        desk = ApprovalDesk(store, clock, Rules(home="/home/me", mode=Mode.MANUAL))
        planner = ScriptedPlanner(Deleting(), {"shell": shell(folder)})
        planner.counsel = desk

        def context(conversation: Conversation) -> Context:
            return structs.replace(surroundings(conversation), services=Services(approvals=desk))

        platform = Platform(folder, pipe)
        house = House(
            store=store,
            clock=clock,
            runner=Runner(store, clock, planner, half_a_cent, "default"),
            channels={"file": platform},
            door=open_door,
            registry=standard_commands(),
            context=context,
            approvals=desk,
        )
        gateway = Gateway(house, GatewayRules(progress=False))
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            await platform.over.wait()
            os.write(pipe, b"!")
            gateway.close()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), int(sys.argv[2]))
