"""Commands about what fills the window, and what it costs: look at it, shorten it, pin to it."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from hermes.commands.command import Command, Context, Reply, Told
from hermes.commands.numbers import counted
from hermes.commands.services import Filling, Window
from hermes.kit.text import plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import Usage
from hermes.schema.sessions import ModelUse, SessionFilter
from hermes.session.compressing import Wish

_DAYS = 30
_MOST_DAYS = 36500
_BAR = 40
_SIGNS = {
    "system": "█", "skills": "▓", "project": "▒", "memory": "▚", "tools": "▞", "history": "■",
}  # fmt: skip
_FREE = "·"
_CHART = 14
"""Days that a chart shows."""
_SESSIONS = 1_000


def _has_window(context: Context) -> bool:
    return context.services.window is not None


def _window(context: Context) -> Window:
    window = context.services.window
    if window is None:
        raise UsageError("The window is not known here.")
    if not context.conversation.started:
        raise UsageError("Nothing has been said yet.", hint="Say something first.")
    return window


async def _compress(context: Context, words: str) -> Reply:
    window = _window(context)
    given = words.split()
    preview = "--preview" in given
    wish = _wish([word for word in given if word != "--preview"])
    session = context.conversation.session
    done = await window.compress(session, wish, preview=preview)
    if preview:
        return Told(
            f"{plural(done.messages, 'message')} would become a summary: about {done.before:,} "
            f"tokens would become {done.after:,} or less. Nothing was changed."
        )
    # Its prompt was put together anew.
    await context.conversation.resume(session.id)
    cost = "" if done.cost is None else f" It cost ${done.cost:,.4f}."
    if done.by:
        return Told(
            f"{done.by} has shortened what it remembers: about {done.before:,} tokens became "
            f"{done.after:,}.{cost} Everything stays searchable."
        )
    how = " No model could write it; it was put together from the words." if done.plain else ""
    return Told(
        f"{plural(done.messages, 'message')} became a summary: about {done.before:,} tokens "
        f"became {done.after:,}.{how}{cost} Everything stays searchable."
    )


def _wish(words: Sequence[str]) -> Wish:
    """`here 3` keeps the last three turns; whatever else is said is what matters most."""
    if words and words[0] == "here":
        turns = counted(words[1]) if len(words) > 1 else 1
        if turns is None:
            raise UsageError("/compress here takes a number of turns.", hint="/compress here 3")
        return Wish(turns=turns, focus=" ".join(words[2:]))
    return Wish(focus=" ".join(words))


async def _context(context: Context, words: str) -> Reply:
    filling = await _window(context).filling(context.conversation.session, context.role)
    return Told("\n".join(_picture(filling)))


def _picture(filling: Filling) -> list[str]:
    taken = sum(filling.parts.values())
    share = 100 * taken / filling.window if filling.window else 100
    total = f"about {taken:,} of {filling.window:,} tokens ({share:.0f}%)"
    lines = [f"  [{_bar(filling)}]", f"  {total}, compressed from {filling.trigger:,} on"]
    width = max(map(len, filling.parts))
    lines += [
        f"  {_SIGNS.get(name, '■')} {name:<{width}}  {tokens:>9,}"
        for name, tokens in filling.parts.items()
    ]
    if filling.times:
        cost = "price unknown" if filling.cost is None else f"${filling.cost:,.4f}"
        lines.append(f"  compressed {plural(filling.times, 'time')} so far, {cost}")
    return lines


def _bar(filling: Filling) -> str:
    """As long as the window; what is there at all is seen."""
    bar = ""
    for name, tokens in filling.parts.items():
        cells = round(_BAR * tokens / max(filling.window, 1)) or (1 if tokens else 0)
        bar += _SIGNS.get(name, "■") * cells
    return bar[:_BAR].ljust(_BAR, _FREE)


async def _pin(context: Context, words: str) -> Reply:
    window = _window(context)
    session = context.conversation.session
    if words:
        await window.pin(session, words)
        return Told("Pinned. It stays in view, however long this gets.")
    pins = await window.pins(session)
    if not pins:
        return Told("Nothing is pinned here. /pin with some words pins them.")
    return Told("\n".join(f"  {place}  {text}" for place, text in enumerate(pins, start=1)))


async def _unpin(context: Context, words: str) -> Reply:
    number = counted(words)
    if number is None:
        raise UsageError("/unpin takes the number of a pin.", hint="/pin lists them.")
    text = await _window(context).unpin(context.conversation.session, number)
    return Told(f"No longer pinned: {text}")


async def _insights(context: Context, words: str) -> Reply:
    days = counted(words) if words else _DAYS
    if days is None or days > _MOST_DAYS:
        raise UsageError("/insights takes a number of days.", hint="For example: /insights 7")
    since = context.conversation.now() - timedelta(days=days)
    uses = await context.archive.usage(since=since)
    span = f"Sessions of the last {plural(days, 'day')}:"
    if not uses:
        return Told(f"{span} nothing was used.")
    total = sum((use.usage for use in uses), Usage())
    costs = [use.cost for use in uses]
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    together = used(sum(use.calls for use in uses), total, cost)
    lines = [span, *_table(uses), f"In all: {together}"]
    return Told("\n".join(lines + _chart(await _by_day(context, days))))


def _table(uses: Sequence[ModelUse]) -> list[str]:
    rows = [["model", "calls", "tokens in", "from cache", "tokens out", "cost"]]
    for use in uses:
        tokens = use.usage
        cost = "unknown" if use.cost is None else f"${use.cost:,.4f}"
        counts = (use.calls, tokens.input, tokens.cache_read, tokens.output)
        rows.append([f"{use.provider}/{use.model}", *(f"{one:,}" for one in counts), cost])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(["", row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]


class _Day(Struct):
    tokens: int = 0
    cost: float = 0.0
    sessions: int = 0


async def _by_day(context: Context, days: int) -> dict[str, _Day]:
    """What sessions took, by the day of their last word."""
    since = context.conversation.now() - timedelta(days=days)
    found: dict[str, _Day] = {}
    for digest in await context.archive.list(SessionFilter(reviews=True), limit=_SESSIONS):
        if digest.last_at < since:
            continue
        day = found.setdefault(f"{digest.last_at.astimezone():%Y-%m-%d}", _Day())
        day.tokens += digest.usage.input + digest.usage.output
        day.cost += digest.cost or 0.0
        day.sessions += 1
    return dict(sorted(found.items())[-_CHART:])


def _chart(days: dict[str, _Day]) -> list[str]:
    """A bar for each day; one alone would say nothing."""
    if len(days) < 2:
        return []
    most = max(day.tokens for day in days.values()) or 1
    return [
        "Tokens by day:",
        *(
            f"  {name}  {'█' * round(_BAR * day.tokens / most):<{_BAR}}  {day.tokens:>10,}  "
            f"${day.cost:,.4f}  {plural(day.sessions, 'session')}"
            for name, day in days.items()
        ),
    ]


def use_line(use: ModelUse) -> str:
    return f"  {use.provider}/{use.model}: {used(use.calls, use.usage, use.cost)}"


def used(calls: int, tokens: Usage, cost: float | None) -> str:
    price = "price unknown" if cost is None else f"${cost:,.4f}"
    cached = f", {tokens.cache_read:,} from cache" if tokens.cache_read else ""
    return (
        f"{plural(calls, 'call')}, {tokens.input:,} tokens in{cached}, {tokens.output:,} out, "
        f"{price}"
    )


COMMANDS = (
    Command(
        name="compress",
        aliases=("compact",),
        usage="[here turns] [what matters] [--preview]",
        summary="Tell what was said so far in short, to make room.",
        needs=_has_window,
        run=_compress,
    ),
    Command(
        name="context",
        summary="Show what fills the model's window.",
        needs=_has_window,
        run=_context,
    ),
    Command(
        name="pin",
        usage="[text]",
        summary="Keep something in view for the whole session.",
        needs=_has_window,
        run=_pin,
    ),
    Command(
        name="unpin", usage="<number>", summary="Take a pin back.", needs=_has_window, run=_unpin
    ),
    Command(
        name="insights",
        usage="[days]",
        summary="Show tokens and cost of your sessions, by model and day.",
        run=_insights,
    ),
)
