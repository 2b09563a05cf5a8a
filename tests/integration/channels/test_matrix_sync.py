"""How the Matrix channel follows an account, on a real Synapse."""

from pathlib import Path

import anyio
import pytest
from aiohttp import web

from hermes.testing.contracts.channel import listening
from support.matrix import MatrixBench, matrix_bench, new_user, running_person
from support.synapse import Homeserver

pytestmark = pytest.mark.slow


class Requests:
    """Notes the requests of the channel, and lets them pass."""

    def __init__(self, bench: MatrixBench) -> None:
        self.timeouts: list[str] = []
        self._more = anyio.Event()
        bench.proxy.fail = self._note

    def _note(self, request: web.Request) -> None:
        if request.path.endswith("/sync"):
            self.timeouts.append(request.query["timeout"])
        self._more.set()
        self._more = anyio.Event()

    async def syncs(self, number: int) -> None:
        while len(self.timeouts) < number:
            await self._more.wait()


async def test_first_answer_after_a_start_does_not_wait_for_news(
    homeserver: Homeserver, tmp_path: Path
) -> None:
    """A quiet account counts as connected at once, not after the time of a long poll."""
    agent = new_user(homeserver, "agent")
    with running_person(homeserver, "ann") as ann:
        async with matrix_bench(homeserver, ann, agent, tmp_path) as bench:
            requests = Requests(bench)
            for _ in range(2):
                requests.timeouts.clear()
                async with listening(bench.channel):
                    await requests.syncs(2)
                assert requests.timeouts[:2] == ["0", "25000"]
