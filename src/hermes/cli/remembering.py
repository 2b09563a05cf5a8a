"""What `hermes memory` does."""

from argparse import Namespace
from collections.abc import Awaitable, Callable

import anyio
from msgspec import Struct

from hermes.changes.change import Proposal
from hermes.changes.differences import described, in_full, one_line, short
from hermes.changes.ledger import Ledger
from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.config.home import ensure_home
from hermes.config.load import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.text import plural
from hermes.memory.entries import Limits, Target, join
from hermes.memory.notebook import KIND, Full, Notebook
from hermes.memory.operations import Unfit
from hermes.store.sqlite import open_store


class _Desk(Struct, frozen=True):
    notebook: Notebook
    ledger: Ledger
    args: Namespace
    say: Callable[[str], None]


def perform(args: Namespace, context: CliContext) -> int:
    return anyio.run(_perform, args, context)


async def _perform(args: Namespace, context: CliContext) -> int:
    home, clock = context.home(), SystemClock()
    ensure_home(home)
    settings = load_config(home, context.env).config.memory

    def say(text: str) -> None:
        context.stdout.write(harmless(text) + "\n")

    async with open_store(home.state_db, clock) as store:
        ledger = Ledger(store, home.path, clock)
        limits = Limits(settings.memory_char_limit, settings.user_char_limit)
        desk = _Desk(Notebook(home.path, ledger, limits, clock), ledger, args, say)
        await ledger.settle()
        return await _ACTIONS[args.action](desk)


async def _show(desk: _Desk) -> int:
    for target in [Target(desk.args.target)] if desk.args.target else list(Target):
        sheet = await desk.notebook.read(target)
        desk.say(f"{target.file}  {sheet.usage}")
        desk.say(join(sheet.entries) if sheet.entries else "(nothing yet)")
    return 0


async def _log(desk: _Desk) -> int:
    entries = await desk.ledger.log(KIND, max(1, desk.args.number))
    for entry in entries:
        desk.say(one_line(entry))
    if not entries:
        desk.say("Nothing was ever changed.")
    return 0


async def _diff(desk: _Desk) -> int:
    desk.say(in_full((await desk.ledger.get(desk.args.change)).change))
    return 0


async def _undo(desk: _Desk) -> int:
    undone = await desk.ledger.undo(desk.args.change)
    desk.say(f"{undone.summary}  ({short(undone.id)})")
    return 0


async def _pending(desk: _Desk) -> int:
    waiting = await desk.ledger.waiting(KIND)
    for one in waiting:
        origin = described(one.origin)
        desk.say(f"{short(one.id)}  {one.name}: {one.summary}{f'  [{origin}]' if origin else ''}")
    if not waiting:
        desk.say("Nothing waits for a decision.")
    return 0


async def _approve(desk: _Desk) -> int:
    for proposal in await _meant(desk):
        try:
            sheet = await desk.notebook.accept(proposal)
        except (Unfit, Full) as error:
            raise UsageError(f"{proposal.summary}: {error}.") from error
        desk.say(f"remembered: {proposal.summary}  ({sheet.usage})")
    return 0


async def _reject(desk: _Desk) -> int:
    meant = await _meant(desk)
    for proposal in meant:
        await desk.ledger.decide(proposal, accepted=False)
    desk.say(f"{plural(len(meant), 'proposal')} rejected")
    return 0


async def _meant(desk: _Desk) -> list[Proposal]:
    if desk.args.proposal == "all":
        return list(await desk.ledger.waiting(KIND))
    found = await desk.ledger.proposal(desk.args.proposal)
    if found.kind != KIND:
        raise UsageError(f"{desk.args.proposal} is about {found.kind}.")
    return [found]


_ACTIONS: dict[str, Callable[[_Desk], Awaitable[int]]] = {
    "show": _show,
    "log": _log,
    "diff": _diff,
    "undo": _undo,
    "pending": _pending,
    "approve": _approve,
    "reject": _reject,
}
