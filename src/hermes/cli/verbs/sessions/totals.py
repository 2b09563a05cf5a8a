"""`sessions stats`: how many, from where, how big, and what it cost as far as prices are known."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hermes.cli.export.plain import flat
from hermes.cli.verbs.sessions.desk import NONE_YET, Desk
from hermes.kit.text import plural
from hermes.schema.scope import OWNER
from hermes.schema.sessions import ModelUse
from hermes.store.sqlite import SqliteStore
from hermes.store.upkeep import Stats

UNKNOWN = "price unknown"


class SourceCount(Struct, frozen=True):
    source: str
    sessions: int
    messages: int


class Totals(Struct, frozen=True, kw_only=True):
    """The document that `--json` prints."""

    path: str
    bytes: int
    sessions: int
    messages: int
    sources: Sequence[SourceCount]
    models: Sequence[ModelUse]


def stats(desk: Desk) -> int:
    totals = _nothing(desk) if desk.is_empty else desk.with_store(_fetch)
    if desk.args.json:
        desk.paper.data(msgspec.json.encode(totals) + b"\n")
    elif not totals.sessions:
        desk.note(NONE_YET)
    else:
        _print(desk, totals)
    return 0


def _nothing(desk: Desk) -> Totals:
    path = str(desk.context.home().state_db)
    return Totals(path=path, bytes=0, sessions=0, messages=0, sources=(), models=())


async def _fetch(store: SqliteStore) -> Totals:
    counted: Stats = await store.stats()
    sources = [SourceCount(each.name, each.sessions, each.messages) for each in counted.sources]
    return Totals(
        path=str(store.path),
        bytes=counted.size,
        sessions=counted.sessions,
        messages=sum(source.messages for source in sources),
        sources=sources,
        models=await store.seen_by(OWNER).usage(),
    )


def _print(desk: Desk, totals: Totals) -> None:
    paper = desk.paper
    counts = f"{plural(totals.sessions, 'session')}, {plural(totals.messages, 'message')}"
    paper.line(f"{counts}, {size(totals.bytes)} in {flat(totals.path)}")
    paper.line()
    sources = sorted(totals.sources, key=lambda source: -source.sessions)
    paper.table(
        [
            ("SOURCE", "SESSIONS", "MESSAGES"),
            *((flat(s.source) or "-", f"{s.sessions:,}", f"{s.messages:,}") for s in sources),
        ],
        right=(1, 2),
    )
    if totals.models:
        paper.line()
        rows = [_model(use) for use in sorted(totals.models, key=lambda use: -use.usage.input)]
        heading = ("MODEL", "CALLS", "TOKENS IN", "FROM CACHE", "TOKENS OUT", "COST")
        paper.table([heading, *rows], right=(1, 2, 3, 4, 5))
        paper.line()
        paper.line(_cost(totals.models))


def _model(use: ModelUse) -> tuple[str, ...]:
    name = "/".join(part for part in (use.provider, use.model) if part)
    tokens = use.usage
    cost = UNKNOWN if use.cost is None else f"${use.cost:,.4f}"
    numbers = (use.calls, tokens.input, tokens.cache_read, tokens.output)
    return (flat(name) or "-", *(f"{number:,}" for number in numbers), cost)


def _cost(models: Sequence[ModelUse]) -> str:
    known = sum(use.cost for use in models if use.cost is not None)
    unknown = sum(use.cost is None for use in models)
    if unknown == len(models):
        return f"What it cost is not known: {UNKNOWN} for {plural(unknown, 'model')}."
    rest = f", not counting {plural(unknown, 'model')} with {UNKNOWN}" if unknown else ""
    return f"It cost ${known:,.4f}{rest}."


def size(count: int) -> str:
    """Bytes in the unit that reads best."""
    number = float(count)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
