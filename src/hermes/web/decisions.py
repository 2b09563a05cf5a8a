"""List what waits for the owner outside a turn: proposed changes, pairing requests, tasks."""

from collections.abc import Sequence

from anyio.to_thread import run_sync
from msgspec import Struct

from hermes.gateway.pairing import Pairing, PairingRequest
from hermes.ports.ledger import Proposal
from hermes.schema.errors import ConfigError
from hermes.web.context import ProfileWeb
from hermes.web.waiting_tasks import BoardTasks


class Decisions(Struct, frozen=True):
    proposals: Sequence[Proposal]
    people: Sequence[PairingRequest]
    boards: Sequence[BoardTasks]

    @property
    def count(self) -> int:
        tasks = sum(len(board.tasks) for board in self.boards)
        return len(self.proposals) + len(self.people) + tasks


async def read_decisions(profile: ProfileWeb) -> Decisions:
    app = profile.app
    pairing = Pairing(app.home.pairing, app.clock)
    try:
        people = await run_sync(pairing.pending)
    except ConfigError:
        # The people page reports what is wrong with the file; other pages must still open.
        people = []
    return Decisions(
        await app.learning.ledger.waiting(), people, await profile.waiting_tasks.read()
    )
