"""Commands that look and choose: the model, the state of the session, what it has cost."""

from hermes.commands.command import Command, Context, Reply, Told
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.sessions import ModelUse
from hermes.session.conversation import recap


async def _model(context: Context, words: str) -> Reply:
    rest = words.split()
    everywhere = "--global" in rest
    rest = [word for word in rest if word not in {"--global", "--session"}]
    provider: str | None = None
    if "--provider" in rest:
        place = rest.index("--provider")
        if place + 1 >= len(rest):
            raise UsageError("--provider needs a name.")
        provider = rest[place + 1]
        del rest[place : place + 2]
    if not rest:
        return Told(f"The model is {context.models.current()}. `hermes model` lists others.")
    return Told(await context.models.switch(rest[0], provider, everywhere=everywhere))


async def _status(context: Context, words: str) -> Reply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    facts = [
        ("session", session.id + (f" “{session.title}”" if session.title else "")),
        ("messages", str(len(rows))),
        ("model", context.models.current()),
        ("folder", session.cwd),
        *context.facts.status(),
    ]
    width = max(len(name) for name, _ in facts)
    return Told("\n".join(f"  {name:<{width}}  {value}" for name, value in facts))


async def _usage(context: Context, words: str) -> Reply:
    uses = await context.conversation.usage()
    if not uses:
        return Told("Nothing has been used in this session yet.")
    return Told("\n".join(_use_line(use) for use in uses))


def _use_line(use: ModelUse) -> str:
    cost = "price unknown" if use.cost is None else f"${use.cost:,.4f}"
    tokens = use.usage
    cached = f", {tokens.cache_read:,} from cache" if tokens.cache_read else ""
    return (
        f"  {use.provider}/{use.model}: {use.calls} calls, "
        f"{tokens.input:,} tokens in{cached}, {tokens.output:,} out, {cost}"
    )


async def _history(context: Context, words: str) -> Reply:
    rows = await context.conversation.messages()
    lines = [f"{who}: {one_line(said, 500)}" for who, said in recap(rows, len(rows))]
    return Told("\n".join(lines) or "Nothing has been said yet.")


COMMANDS = (
    Command(
        name="model",
        usage="[name] [--provider p] [--global]",
        summary="Show or change the model; --global also for new sessions.",
        run=_model,
    ),
    Command(name="status", summary="Show this session and its surroundings.", run=_status),
    Command(name="usage", summary="Show tokens and cost of this session.", run=_usage),
    Command(name="history", summary="Show what was said in this session.", run=_history),
)
