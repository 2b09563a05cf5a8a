"""The gateway of `crashing_gateway.py`, but its turns are run by another one.

usage: crashing_proxy.py <folder> <place> <pipe> <url of the far gateway> [<its key>]

With a key the far gateway is asked what it can do; without one it is taken for a plain server.
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
from hermes.ports.runtime import Ending, Errand, Heard, Runtime, Tell
from hermes.runtimes.proxy.far_runtime import FarRuntime
from hermes.runtimes.proxy.far_turn import Parts
from hermes.runtimes.proxy.runtime import Far, ProxyRuntime
from hermes.schema.events import Said, TextDelta
from hermes.schema.messages import Message
from hermes.schema.scope import Scope
from hermes.schema.sessions import Session
from hermes.session.runner import Runner
from hermes.store.blobs import FileBlobs
from hermes.store.sqlite import open_store
from talks import half_a_cent


class StoppingRuntime:
    """Stops in mid-answer, and when the answer is written down but not yet posted."""

    name = "The far gateway"

    def __init__(self, runtime: Runtime, stop: Stop) -> None:
        self._runtime = runtime
        self._stop = stop

    async def run(self, errand: Errand, tell: Tell) -> Ending:
        await self._stop.at("before asking")

        async def stopping(event: Heard) -> None:
            await tell(event)
            if isinstance(event, TextDelta):
                await self._stop.at("in mid-answer")
            if isinstance(event, Said):
                await self._stop.at("after the answer")

        return await self._runtime.run(errand, stopping)

    async def close(self) -> None:
        await self._runtime.close()


def far_runtime(folder: Path, url: str, key: str) -> Runtime:
    if not key:
        return ProxyRuntime(Far(url=url))
    far = Far(url=url, key=key)
    return FarRuntime(Parts(far=far, clock=SystemClock(), blobs=FileBlobs(folder / "blobs")))


class ProxyPlanner:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def plan(self, session: Session, scope: Scope, history: Sequence[Message]) -> Entrusted:
        return Entrusted(scope=scope, runtime=self._runtime, system="Be kind.", history=history)


async def main(folder: Path, stop: Stop, url: str, key: str = "") -> None:
    clock = SystemClock()
    async with open_store(folder / "state.db", clock) as plain:
        store = StoppingStore(plain._engine, clock)
        store.stop, store.changed = stop, anyio.Event()
        planner = ProxyPlanner(StoppingRuntime(far_runtime(folder, url, key), stop))
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
    anyio.run(main, Path(sys.argv[1]), Stop(sys.argv[2], int(sys.argv[3])), *sys.argv[4:])
