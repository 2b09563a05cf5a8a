"""Commands about what fills the window, and what it costs: look at it, shorten it, pin to it."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import ContextUsage, ContextWindow
from hermes.compaction.service import CompactionOptions
from hermes.kit.text import parse_count, plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import Usage
from hermes.schema.sessions import ModelUsage, SessionFilter

_DAYS = 30
_MAX_DAYS = 36500
_BAR_WIDTH = 40
_PART_SYMBOLS = {
    "system": "█", "skills": "▓", "project": "▒", "memory": "▚", "tools": "▞", "history": "■",
}  # fmt: skip
_FREE_SYMBOL = "·"
_CHART_DAYS = 14
"""Days that a chart shows."""
_MAX_SESSIONS = 1_000


def _has_window(context: CommandContext) -> bool:
    return context.services.window is not None


def _window(context: CommandContext) -> ContextWindow:
    window = context.services.window
    if window is None:
        raise UsageError("The window is not known here.")
    if not context.conversation.started:
        raise UsageError("Nothing has been said yet.", hint="Say something first.")
    return window


async def _compress(context: CommandContext, words: str) -> CommandReply:
    window = _window(context)
    given = words.split()
    preview = "--preview" in given
    wish = _compaction_options([word for word in given if word != "--preview"])
    session = context.conversation.session
    done = await window.compress(session, wish, preview=preview)
    if preview:
        return TextReply(
            f"{plural(done.messages, 'message')} would become a summary: about {done.before:,} "
            f"tokens would become {done.after:,} or less. Nothing was changed."
        )
    # Its prompt was put together anew.
    await context.conversation.resume(session.id)
    cost = "" if done.cost is None else f" It cost ${done.cost:,.4f}."
    if done.by:
        return TextReply(
            f"{done.by} has shortened what it remembers: about {done.before:,} tokens became "
            f"{done.after:,}.{cost} Everything stays searchable."
        )
    how = " No model could write it; it was put together from the words." if done.plain else ""
    return TextReply(
        f"{plural(done.messages, 'message')} became a summary: about {done.before:,} tokens "
        f"became {done.after:,}.{how}{cost} Everything stays searchable."
    )


def _compaction_options(words: Sequence[str]) -> CompactionOptions:
    """`here 3` keeps the last three turns; whatever else is said is what matters most."""
    if words and words[0] == "here":
        turns = parse_count(words[1]) if len(words) > 1 else 1
        if turns is None:
            raise UsageError("/compress here takes a number of turns.", hint="/compress here 3")
        return CompactionOptions(turns=turns, focus=" ".join(words[2:]))
    return CompactionOptions(focus=" ".join(words))


async def _context(context: CommandContext, words: str) -> CommandReply:
    filling = await _window(context).filling(context.conversation.session, context.role)
    return TextReply("\n".join(_usage_lines(filling)))


def _usage_lines(filling: ContextUsage) -> list[str]:
    taken = sum(filling.parts.values())
    share = 100 * taken / filling.window if filling.window else 100
    total = f"about {taken:,} of {filling.window:,} tokens ({share:.0f}%)"
    lines = [f"  [{_bar(filling)}]", f"  {total}, compressed from {filling.trigger:,} on"]
    width = max(map(len, filling.parts))
    lines += [
        f"  {_PART_SYMBOLS.get(name, '■')} {name:<{width}}  {tokens:>9,}"
        for name, tokens in filling.parts.items()
    ]
    if filling.times:
        cost = "price unknown" if filling.cost is None else f"${filling.cost:,.4f}"
        lines.append(f"  compressed {plural(filling.times, 'time')} so far, {cost}")
    return lines


def _bar(filling: ContextUsage) -> str:
    """As long as the window; what is there at all is seen."""
    bar = ""
    for name, tokens in filling.parts.items():
        cells = round(_BAR_WIDTH * tokens / max(filling.window, 1)) or (1 if tokens else 0)
        bar += _PART_SYMBOLS.get(name, "■") * cells
    return bar[:_BAR_WIDTH].ljust(_BAR_WIDTH, _FREE_SYMBOL)


async def _pin(context: CommandContext, words: str) -> CommandReply:
    window = _window(context)
    session = context.conversation.session
    if words:
        await window.pin(session, words)
        return TextReply("Pinned. It stays in view, however long this gets.")
    pins = await window.pins(session)
    if not pins:
        return TextReply("Nothing is pinned here. /pin with some words pins them.")
    return TextReply("\n".join(f"  {place}  {text}" for place, text in enumerate(pins, start=1)))


async def _unpin(context: CommandContext, words: str) -> CommandReply:
    number = parse_count(words)
    if number is None:
        raise UsageError("/unpin takes the number of a pin.", hint="/pin lists them.")
    text = await _window(context).unpin(context.conversation.session, number)
    return TextReply(f"No longer pinned: {text}")


async def _insights(context: CommandContext, words: str) -> CommandReply:
    days = parse_count(words) if words else _DAYS
    if days is None or days > _MAX_DAYS:
        raise UsageError("/insights takes a number of days.", hint="For example: /insights 7")
    since = context.conversation.now() - timedelta(days=days)
    uses = await context.archive.usage(since=since)
    span = f"Sessions of the last {plural(days, 'day')}:"
    if not uses:
        return TextReply(f"{span} nothing was used.")
    total = sum((use.usage for use in uses), Usage())
    costs = [use.cost for use in uses]
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    together = usage_text(sum(use.calls for use in uses), total, cost)
    lines = [span, *_usage_table(uses), f"In all: {together}"]
    return TextReply("\n".join(lines + _chart(await _by_day(context, days))))


def _usage_table(uses: Sequence[ModelUsage]) -> list[str]:
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


class _DayUsage(Struct):
    tokens: int = 0
    cost: float = 0.0
    sessions: int = 0


async def _by_day(context: CommandContext, days: int) -> dict[str, _DayUsage]:
    """What sessions took, by the day of their last word."""
    since = context.conversation.now() - timedelta(days=days)
    found: dict[str, _DayUsage] = {}
    for digest in await context.archive.list(SessionFilter(reviews=True), limit=_MAX_SESSIONS):
        if digest.last_at < since:
            continue
        day = found.setdefault(f"{digest.last_at.astimezone():%Y-%m-%d}", _DayUsage())
        day.tokens += digest.usage.input + digest.usage.output
        day.cost += digest.cost or 0.0
        day.sessions += 1
    return dict(sorted(found.items())[-_CHART_DAYS:])


def _chart(days: dict[str, _DayUsage]) -> list[str]:
    """A bar for each day; one alone would say nothing."""
    if len(days) < 2:
        return []
    most = max(day.tokens for day in days.values()) or 1
    return [
        "Tokens by day:",
        *(
            f"  {name}  {'█' * round(_BAR_WIDTH * day.tokens / most):<{_BAR_WIDTH}}  "
            f"{day.tokens:>10,}  ${day.cost:,.4f}  {plural(day.sessions, 'session')}"
            for name, day in days.items()
        ),
    ]


def usage_line(use: ModelUsage) -> str:
    return f"  {use.provider}/{use.model}: {usage_text(use.calls, use.usage, use.cost)}"


def usage_text(calls: int, tokens: Usage, cost: float | None) -> str:
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
