"""`hermes memory`: show the agent's memory, and review or undo its changes."""

from argparse import Namespace
from collections.abc import Awaitable, Callable

import anyio

from hermes.app.storage import open_archive
from hermes.cli.context import CliContext
from hermes.cli.ledger_actions import LedgerActions
from hermes.config.home import ensure_home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import one_line
from hermes.learning.diffs import short_id
from hermes.learning.duplicates import find_duplicates, propose_removal
from hermes.learning.ledger import Ledger
from hermes.learning.memory import (
    MEMORY_KIND,
    InvalidOperation,
    MemoryFull,
    MemoryLimits,
    MemoryStore,
    MemoryTarget,
    join_entries,
)
from hermes.ports.ledger import Change, Proposal


def run(args: Namespace, context: CliContext) -> int:
    return anyio.run(_perform, args, context)


async def _perform(args: Namespace, context: CliContext) -> int:
    home, clock = context.home(), SystemClock()
    ensure_home(home)
    settings = load_config(home, context.profile_env()).config.memory

    def say(text: str) -> None:
        context.stdout.write(escape_controls(text) + "\n")

    async with open_archive(home, clock) as store:
        ledger = Ledger(store, home.path, clock)
        limits = MemoryLimits(settings.memory_char_limit, settings.user_char_limit)
        memory = MemoryStore(home.path, ledger, limits, clock)
        await ledger.complete_interrupted()
        accept, undo = _accept_with(memory), _undo_with(memory)
        done = await LedgerActions(ledger, MEMORY_KIND, args, say, accept, undo).act()
        if not done:
            await (_curate if args.action == "curate" else _show)(memory, args, say)
        return 0


async def _show(memory: MemoryStore, args: Namespace, say: Callable[[str], None]) -> None:
    for target in [MemoryTarget(args.target)] if args.target else list(MemoryTarget):
        sheet = await memory.read(target)
        say(f"{target.file}  {sheet.usage}")
        say(join_entries(sheet.entries) if sheet.entries else "(nothing yet)")


async def _curate(memory: MemoryStore, args: Namespace, say: Callable[[str], None]) -> None:
    found = await find_duplicates(memory)
    for duplicate in found:
        what = f"{duplicate.target.file}: “{one_line(duplicate.drop, 60)}”"
        why = f"duplicates “{one_line(duplicate.keep, 60)}”"
        if args.dry_run:
            say(f"{what} {why}")
        else:
            proposal = await propose_removal(memory, duplicate)
            say(f"proposed: remove {what}, which {why}  ({short_id(proposal.id)})")
    pending = "Review the proposals: hermes memory pending"
    say(pending if found else "No new duplicate entries.")


def _accept_with(memory: MemoryStore) -> Callable[[Proposal], Awaitable[str]]:
    async def accept(proposal: Proposal) -> str:
        try:
            sheet = await memory.accept(proposal)
        except (InvalidOperation, MemoryFull) as error:
            raise UsageError(f"{proposal.summary}: {error}.") from error
        return f"Applied: {proposal.summary}  ({sheet.usage})"

    return accept


def _undo_with(memory: MemoryStore) -> Callable[[str], Awaitable[Change]]:
    async def undo(name: str) -> Change:
        try:
            return await memory.undo(name)
        except MemoryFull as error:
            raise UsageError(f"Cannot undo: {error}.") from error

    return undo
