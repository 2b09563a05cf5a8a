"""Slash commands for the context window: usage, compaction, pins and cost."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from msgspec import Struct

from hermes.commands.command import Command, CommandContext, require_service
from hermes.commands.services import ContextUsage, ContextWindow
from hermes.compaction.service import CompactionOptions
from hermes.kit.charts import bar
from hermes.kit.text import parse_count, plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import Usage
from hermes.schema.sessions import ModelUsage, SessionFilter
from hermes.schema.terminal import CommandReply, TextReply

_DAYS = 30
_MAX_DAYS = 36500
_BAR_WIDTH = 40
_PART_SYMBOLS = {
    "system": "█", "skills": "▓", "project": "▒", "memory": "▚", "tools": "▞", "history": "■",
}  # fmt: skip
_FREE_SYMBOL = "·"
_CHART_DAYS = 14
_MAX_SESSIONS = 1_000


def _window(context: CommandContext) -> ContextWindow:
    window = context.services.context_window
    window = require_service(window, "The context window is not available here.")
    if not context.conversation.started:
        raise UsageError("The conversation is empty.", hint="Send a message first.")
    return window


async def _compress(context: CommandContext, args: str) -> CommandReply:
    window = _window(context)
    parts = args.split()
    preview = "--preview" in parts
    options = _compaction_options([word for word in parts if word != "--preview"])
    session = context.conversation.session
    result = await window.compress(session, options, preview=preview)
    if preview:
        return TextReply(
            f"{plural(result.messages, 'message')} would be summarized: about {result.before:,} "
            f"tokens would become {result.after:,} or less. Nothing was changed."
        )
    # Compaction wrote a new system prompt.
    await context.conversation.resume(session.id)
    cost = "" if result.cost is None else f" It cost {_price_text(result.cost)}."
    if result.by:
        return TextReply(
            f"{result.by} compacted its history from about {result.before:,} to "
            f"{result.after:,} tokens.{cost} Everything stays searchable."
        )
    note = " It was written without a model, because none was available." if result.plain else ""
    return TextReply(
        f"Summarized {plural(result.messages, 'message')}: about {result.before:,} tokens became "
        f"{result.after:,}.{note}{cost} Everything stays searchable."
    )


def _compaction_options(args: Sequence[str]) -> CompactionOptions:
    """`here 3` keeps the last three turns; other words say what the summary should focus on."""
    if args and args[0] == "here":
        turns = parse_count(args[1]) if len(args) > 1 else 1
        if turns is None:
            raise UsageError(
                "/compress here takes a number of turns.", hint="For example: /compress here 3"
            )
        return CompactionOptions(turns=turns, focus=" ".join(args[2:]))
    return CompactionOptions(focus=" ".join(args))


async def _context(context: CommandContext, args: str) -> CommandReply:
    usage = await _window(context).usage(context.conversation.session, context.role)
    return TextReply("\n".join(_usage_lines(usage)))


def _usage_lines(usage: ContextUsage) -> list[str]:
    used = sum(usage.parts.values())
    share = 100 * used / usage.window if usage.window else 100
    total = f"about {used:,} of {usage.window:,} tokens ({share:.0f}%)"
    lines = [f"  [{_bar(usage)}]", f"  {total}; compacted at {usage.trigger:,}"]
    width = max(map(len, usage.parts))
    lines += [
        f"  {_PART_SYMBOLS.get(name, '■')} {name:<{width}}  {tokens:>9,}"
        for name, tokens in usage.parts.items()
    ]
    if usage.times:
        times = plural(usage.times, "time")
        lines.append(f"  compacted {times} so far, {_price_text(usage.cost)}")
    return lines


def _bar(usage: ContextUsage) -> str:
    """A bar for the whole window; every non-empty part gets at least one cell."""
    bar = ""
    for name, tokens in usage.parts.items():
        cells = round(_BAR_WIDTH * tokens / max(usage.window, 1)) or (1 if tokens else 0)
        bar += _PART_SYMBOLS.get(name, "■") * cells
    return bar[:_BAR_WIDTH].ljust(_BAR_WIDTH, _FREE_SYMBOL)


async def _pin(context: CommandContext, args: str) -> CommandReply:
    window = _window(context)
    session = context.conversation.session
    if args:
        await window.pin(session, args)
        return TextReply("Pinned. It survives compaction.")
    pins = await window.pins(session)
    if not pins:
        return TextReply("Nothing is pinned. Pin a text with: /pin TEXT")
    return TextReply("\n".join(f"  {number}  {text}" for number, text in enumerate(pins, start=1)))


async def _unpin(context: CommandContext, args: str) -> CommandReply:
    number = parse_count(args)
    if number is None:
        raise UsageError("/unpin takes the number of a pin.", hint="/pin lists them.")
    text = await _window(context).unpin(context.conversation.session, number)
    return TextReply(f"Unpinned: {text}")


async def _insights(context: CommandContext, args: str) -> CommandReply:
    days = parse_count(args) if args else _DAYS
    if days is None or days > _MAX_DAYS:
        raise UsageError("/insights takes a number of days.", hint="For example: /insights 7")
    since = context.conversation.now() - timedelta(days=days)
    entries = await context.archive.usage(since=since)
    span = f"Usage of the last {plural(days, 'day')}:"
    if not entries:
        return TextReply(f"{span} none.")
    total = sum((entry.usage for entry in entries), Usage())
    costs = [entry.cost for entry in entries]
    cost = None if None in costs else sum(cost for cost in costs if cost is not None)
    summary = usage_text(sum(entry.calls for entry in entries), total, cost)
    lines = [span, *_usage_table(entries), f"Total: {summary}", *_model_chart(entries)]
    return TextReply("\n".join(lines + _chart(await _by_day(context, days))))


def _usage_table(entries: Sequence[ModelUsage]) -> list[str]:
    rows = [["model", "calls", "tokens in", "from cache", "tokens out", "cost"]]
    for entry in entries:
        tokens = entry.usage
        counts = (entry.calls, tokens.input, tokens.cache_read, tokens.output)
        row = [f"{entry.provider}/{entry.model}", *(f"{count:,}" for count in counts)]
        rows.append([*row, _price_text(entry.cost, "unknown")])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(["", row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in rows
    ]


def _model_chart(entries: Sequence[ModelUsage]) -> list[str]:
    """A bar for each model; empty for a single model."""
    tokens = {
        f"{entry.provider}/{entry.model}": entry.usage.input + entry.usage.output
        for entry in entries
    }
    total, maximum = sum(tokens.values()), max(tokens.values())
    if len(tokens) < 2 or not total:
        return []
    width = max(map(len, tokens))
    rows = sorted(tokens.items(), key=lambda row: -row[1])
    return [
        "Tokens by model:",
        *(
            f"  {name:<{width}}  {bar(count, maximum, _BAR_WIDTH):<{_BAR_WIDTH}}  "
            f"{count / total:>4.0%}"
            for name, count in rows
        ),
    ]


class _DayUsage(Struct):
    tokens: int = 0
    cost: float = 0.0
    sessions: int = 0


async def _by_day(context: CommandContext, days: int) -> dict[str, _DayUsage]:
    """The usage of sessions by the day of their last message."""
    since = context.conversation.now() - timedelta(days=days)
    found: dict[str, _DayUsage] = {}
    for session in await context.archive.list(SessionFilter(reviews=True), limit=_MAX_SESSIONS):
        if session.last_at < since:
            continue
        day = found.setdefault(f"{session.last_at.astimezone():%Y-%m-%d}", _DayUsage())
        day.tokens += session.usage.input + session.usage.output
        day.cost += session.cost or 0.0
        day.sessions += 1
    today = context.conversation.now().astimezone()
    shown = [
        f"{today - timedelta(days=back):%Y-%m-%d}"
        for back in range(min(days, _CHART_DAYS) - 1, -1, -1)
    ]
    # Include days without use, but none before the first use.
    first = next((index for index, day in enumerate(shown) if day in found), len(shown))
    return {day: found.get(day, _DayUsage()) for day in shown[first:]}


def _chart(days: dict[str, _DayUsage]) -> list[str]:
    """A bar for each day; empty for a single day."""
    if len(days) < 2:
        return []
    maximum = max(day.tokens for day in days.values()) or 1
    return [
        "Tokens by day:",
        *(
            f"  {name}  {bar(day.tokens, maximum, _BAR_WIDTH):<{_BAR_WIDTH}}  "
            f"{day.tokens:>10,}  ${day.cost:,.4f}  {plural(day.sessions, 'session')}"
            for name, day in days.items()
        ),
    ]


def usage_line(entry: ModelUsage) -> str:
    return f"  {entry.provider}/{entry.model}: {usage_text(entry.calls, entry.usage, entry.cost)}"


def usage_text(calls: int, tokens: Usage, cost: float | None) -> str:
    cached = f", {tokens.cache_read:,} from cache" if tokens.cache_read else ""
    return (
        f"{plural(calls, 'call')}, {tokens.input:,} tokens in{cached}, {tokens.output:,} out, "
        f"{_price_text(cost)}"
    )


def _price_text(cost: float | None, unknown: str = "price unknown") -> str:
    return unknown if cost is None else f"${cost:,.4f}"


_window_command = partial(
    Command, is_available=lambda context: context.services.context_window is not None
)

COMMANDS = (
    _window_command(
        name="compress",
        aliases=("compact",),
        usage="[here turns] [what matters] [--preview]",
        summary="Summarize the conversation to free context.",
        run=_compress,
    ),
    _window_command(name="context", summary="Show what fills the context window.", run=_context),
    _window_command(
        name="pin",
        usage="[text]",
        summary="Keep a text in context for the whole session.",
        run=_pin,
    ),
    _window_command(name="unpin", usage="<number>", summary="Remove a pin.", run=_unpin),
    Command(
        name="insights",
        usage="[days]",
        summary="Show tokens and cost by model and day.",
        run=_insights,
    ),
)
