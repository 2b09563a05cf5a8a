"""What `hermes memory` does."""

from argparse import Namespace
from collections.abc import Awaitable, Callable

import anyio

from hermes.changes.change import Change, Proposal
from hermes.changes.differences import short
from hermes.changes.ledger import Ledger
from hermes.cli.context import CliContext
from hermes.cli.export.plain import harmless
from hermes.cli.ledger_showing import Book
from hermes.config.home import ensure_home
from hermes.config.load import load_config
from hermes.kit.clock import SystemClock
from hermes.kit.errors import UsageError
from hermes.kit.text import one_line
from hermes.memory.doubles import find_doubles, propose_removal
from hermes.memory.entries import Limits, Target, join
from hermes.memory.notebook import KIND, Full, Notebook
from hermes.memory.operations import Unfit
from hermes.store.sqlite import open_store


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
        notebook = Notebook(home.path, ledger, limits, clock)
        await ledger.settle()
        book = Book(ledger, KIND, args, say, _accepting(notebook), _undoing(notebook))
        done = await book.act()
        if done is not None:
            return done
        action = _curate if args.action == "curate" else _show
        return await action(notebook, args, say)


async def _show(notebook: Notebook, args: Namespace, say: Callable[[str], None]) -> int:
    for target in [Target(args.target)] if args.target else list(Target):
        sheet = await notebook.read(target)
        say(f"{target.file}  {sheet.usage}")
        say(join(sheet.entries) if sheet.entries else "(nothing yet)")
    return 0


async def _curate(notebook: Notebook, args: Namespace, say: Callable[[str], None]) -> int:
    found = await find_doubles(notebook)
    for double in found:
        what = f"{double.target.file}: “{one_line(double.drop, 60)}”"
        why = f"says nearly the same as “{one_line(double.keep, 60)}”"
        if args.dry_run:
            say(f"{what} {why}")
        else:
            proposal = await propose_removal(notebook, double)
            say(f"proposed: remove {what}, which {why}  ({short(proposal.id)})")
    none = "No two entries say the same, besides what was proposed before."
    say("`hermes memory pending` shows proposals." if found else none)
    return 0


def _accepting(notebook: Notebook) -> Callable[[Proposal], Awaitable[str]]:
    async def accept(proposal: Proposal) -> str:
        try:
            sheet = await notebook.accept(proposal)
        except (Unfit, Full) as error:
            raise UsageError(f"{proposal.summary}: {error}.") from error
        return f"remembered: {proposal.summary}  ({sheet.usage})"

    return accept


def _undoing(notebook: Notebook) -> Callable[[str], Awaitable[Change]]:
    async def undo(name: str) -> Change:
        try:
            return await notebook.undo(name)
        except Full as error:
            raise UsageError(f"It cannot be put back: {error}.") from error

    return undo
