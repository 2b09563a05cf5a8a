"""The change log actions shared by `hermes memory` and `hermes skills`."""

from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from hermes.kit.errors import UsageError
from hermes.kit.text import plural
from hermes.learning.diffs import change_text, entry_line, proposal_text, short_id
from hermes.learning.ledger import Ledger
from hermes.ports.ledger import Change, Proposal


class LedgerActions(Struct, frozen=True):
    """Changes of one `kind`; `accept` applies a proposal and returns a summary."""

    ledger: Ledger
    kind: str
    args: Namespace
    say: Callable[[str], None]
    accept: Callable[[Proposal], Awaitable[str]]
    undo: Callable[[str], Awaitable[Change]]

    async def act(self) -> bool:
        """Perform the action; False if it is not one of these."""
        actions = {
            "log": self._log,
            "diff": self._diff,
            "undo": self._undo,
            "pending": self._pending,
            "approve": self._approve,
            "reject": self._reject,
        }
        if self.args.action not in actions:
            return False
        await actions[self.args.action]()
        return True

    async def _log(self) -> None:
        entries = await self.ledger.log(self.kind, max(1, self.args.number))
        for entry in entries:
            self.say(entry_line(entry))
        if not entries:
            self.say("No changes yet.")

    async def _diff(self) -> None:
        self.say(change_text((await self.ledger.get(self.args.change)).change))

    async def _undo(self) -> None:
        undone = await self.undo(self.args.change)
        self.say(f"{undone.summary}  ({short_id(undone.id)})")

    async def _pending(self) -> None:
        waiting = await self.ledger.waiting(self.kind)
        for proposal in waiting:
            self.say(proposal_text(proposal))
        if not waiting:
            self.say("No pending proposals.")

    async def _approve(self) -> None:
        for proposal in await self._selected_proposals():
            self.say(await self.accept(proposal))

    async def _reject(self) -> None:
        proposals = await self._selected_proposals()
        for proposal in proposals:
            await self.ledger.decide(proposal, accepted=False)
        self.say(f"{plural(len(proposals), 'proposal')} rejected")

    async def _selected_proposals(self) -> Sequence[Proposal]:
        if self.args.proposal == "all":
            return await self.ledger.waiting(self.kind)
        found = await self.ledger.proposal(self.args.proposal)
        if found.kind != self.kind:
            raise UsageError(f"{self.args.proposal} is a proposal about {found.kind}.")
        return [found]
