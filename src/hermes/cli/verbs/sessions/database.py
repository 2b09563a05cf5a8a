"""`sessions stats`, `backup`, `adopt` and `optimize`."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hermes.cli.import_progress import ImportProgress
from hermes.cli.verbs.sessions import NO_SESSIONS, SessionsAction
from hermes.kit.charts import bar
from hermes.kit.terminal_text import escape_controls, single_line
from hermes.kit.text import plural
from hermes.ports.store import Store
from hermes.schema.errors import StoreError, UsageError
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUsage

_BAR_WIDTH = 20
PRICE_UNKNOWN = "price unknown"


class SourceCount(Struct, frozen=True):
    source: str
    sessions: int
    messages: int


class Totals(Struct, frozen=True, kw_only=True):
    """The document that `--json` prints."""

    path: str
    bytes: int = 0
    sessions: int = 0
    messages: int = 0
    sources: Sequence[SourceCount] = ()
    models: Sequence[ModelUsage] = ()


def stats(action: SessionsAction) -> int:
    path = str(action.context.home().database)
    totals = Totals(path=path) if action.is_empty else action.with_store(_fetch)
    if action.args.json:
        action.printer.data(msgspec.json.encode(totals) + b"\n")
    elif not totals.sessions:
        action.note(NO_SESSIONS)
    else:
        _print(action, totals)
    return 0


async def _fetch(store: Store) -> Totals:
    counted = await store.maintenance.stats()
    sources = [
        SourceCount(source.name, source.sessions, source.messages) for source in counted.sources
    ]
    return Totals(
        path=store.maintenance.location,
        bytes=counted.size,
        sessions=counted.sessions,
        messages=sum(source.messages for source in sources),
        sources=sources,
        models=await store.archive_for(OWNER).usage(),
    )


def _print(action: SessionsAction, totals: Totals) -> None:
    printer = action.printer
    counts = f"{plural(totals.sessions, 'session')}, {plural(totals.messages, 'message')}"
    printer.line(f"{counts}, {format_size(totals.bytes)} in {single_line(totals.path)}")
    printer.line()
    largest = max(source.messages for source in totals.sources)
    rows = [
        (single_line(source.source) or "-", f"{source.sessions:,}", f"{source.messages:,}",
         bar(source.messages, largest, _BAR_WIDTH))
        for source in sorted(totals.sources, key=lambda found: -found.sessions)
    ]  # fmt: skip
    printer.table([("SOURCE", "SESSIONS", "MESSAGES", ""), *rows], right=(1, 2))
    if totals.models:
        printer.line()
        most = max(use.usage.input for use in totals.models)
        rows = [
            (*_model(use), bar(use.usage.input, most, _BAR_WIDTH))
            for use in sorted(totals.models, key=lambda use: -use.usage.input)
        ]
        heading = ("MODEL", "CALLS", "TOKENS IN", "FROM CACHE", "TOKENS OUT", "COST", "")
        printer.table([heading, *rows], right=(1, 2, 3, 4, 5))
        printer.line()
        printer.line(_cost(totals.models))


def _model(use: ModelUsage) -> tuple[str, ...]:
    name = "/".join(part for part in (use.provider, use.model) if part)
    tokens = use.usage
    cost = PRICE_UNKNOWN if use.cost is None else f"${use.cost:,.4f}"
    numbers = (use.calls, tokens.input, tokens.cache_read, tokens.output)
    return (single_line(name) or "-", *(f"{number:,}" for number in numbers), cost)


def _cost(models: Sequence[ModelUsage]) -> str:
    known = sum(use.cost for use in models if use.cost is not None)
    unknown = sum(use.cost is None for use in models)
    if unknown == len(models):
        return f"Cost unknown: no price for {plural(unknown, 'model')}."
    rest = f", not counting {plural(unknown, 'model')} with {PRICE_UNKNOWN}" if unknown else ""
    return f"Cost: ${known:,.4f}{rest}."


def format_size(count: int) -> str:
    """Format a byte count, such as `1.5 MB`."""
    number = float(count)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def backup(action: SessionsAction) -> int:
    action.require_sessions()
    target = Path(action.args.file).expanduser().absolute()
    if target.exists():
        raise UsageError(f"{target} already exists.", hint="Choose another name.")
    if not target.parent.is_dir():
        raise UsageError(f"The folder {target.parent} does not exist.")
    action.with_store(lambda store: store.maintenance.backup(target))
    size = format_size(target.stat().st_size)
    action.printer.line(f"Copied {size} to {escape_controls(str(target))}.")
    return 0


def adopt(action: SessionsAction) -> int:
    """Import new sessions from the public system's database now; report a failure."""
    path = action.context.home().legacy_database
    if not path.exists():
        raise StoreError(f"There is no database {path} to import.")
    progress = ImportProgress(action.context)
    added = action.open_store(lambda store: store.maintenance.import_legacy(path, progress))
    if not added.sessions and not added.messages:
        action.note(f"There is nothing new in {escape_controls(str(path))}.")
        return 0
    sessions, messages = plural(added.sessions, "session"), plural(added.messages, "message")
    action.printer.line(f"Imported {sessions} and {messages} from {escape_controls(str(path))}.")
    return 0


def optimize(action: SessionsAction) -> int:
    if action.is_empty:
        action.note(NO_SESSIONS)
        return 0

    async def compact(store: Store) -> tuple[int, int]:
        before = (await store.maintenance.stats()).size
        await store.maintenance.optimize()
        await store.maintenance.vacuum()
        return before, (await store.maintenance.stats()).size

    before, after = map(format_size, action.with_store(compact))
    action.printer.line(f"The database now takes {after} (before: {before}).")
    return 0
