"""The gateway of `crashing_gateway.py`, but its turns are run by another one.

usage: crashing_proxy.py <folder> <place> <pipe> <url of the far gateway>
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
from crashing_gateway import FilePlatform, Stop, StoppingStore, is_over

from gateways import open_door, surroundings
from hermes.agent.plan import Entrusted
from hermes.commands.registry import standard_commands
from hermes.gateway.gateway import Gateway, GatewayRules, House
from hermes.kit.clock import SystemClock
from hermes.ports.runtime import Ending, Errand, Heard, Tell
from hermes.runtimes.proxy.runtime import Far, ProxyRuntime
from hermes.schema.events import Said, TextDelta
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Runner
from hermes.store.sqlite import open_store
from talks import half_a_cent


class StoppingProxy(ProxyRuntime):
    """Stops in mid-answer, and when the answer is written down but not yet posted."""

    def __init__(self, far: Far, stop: Stop) -> None:
        super().__init__(far)
        self._stop = stop

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        await self._stop.at("before asking")

        async def stopping(event: Heard) -> None:
            await tell(event)
            if isinstance(event, TextDelta):
                await self._stop.at("in mid-answer")
            if isinstance(event, Said):
                await self._stop.at("after the answer")

        return await super().run(errand, stopping)


class ProxyPlanner:
    def __init__(self, runtime: ProxyRuntime) -> None:
        self._runtime = runtime

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Entrusted:
        return Entrusted(scope=scope, runtime=self._runtime, system="Be kind.", history=history)


async def main(folder: Path, stop: Stop, url: str) -> None:
    clock = SystemClock()
    async with open_store(folder / "state.db", clock) as plain:
        store = StoppingStore(plain._engine, clock)
        store.stop, store.changed = stop, anyio.Event()
        planner = ProxyPlanner(StoppingProxy(Far(url=url), stop))
        house = House(
            store=store,
            clock=clock,
            runner=Runner(store, clock, planner, half_a_cent, "default"),
            channels={"file": FilePlatform(folder, stop)},
            door=open_door,
            registry=standard_commands(),
            context=surroundings,
        )
        gateway = Gateway(house, GatewayRules(progress=False))
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            changed = store.changed
            while not await is_over(folder, store, 2):
                await changed.wait()
                changed = store.changed
            stop.tell()
            group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Stop(sys.argv[2], int(sys.argv[3])), sys.argv[4])
