"""Commands that look and choose: the model, the state of the session, what it has cost."""

from hermes.commands.command import Command, Context, Reply, Told
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.scope import Role
from hermes.schema.sessions import ModelUse, SessionChange
from hermes.session.conversation import recap


async def _model(context: Context, words: str) -> Reply:
    if not words:
        current = context.models.current(context.conversation.session)
        return Told(f"The model is {current}. `hermes model` lists others.")
    rest = words.split()
    provider = _take_provider(rest)
    everywhere = "--global" in rest
    names = [word for word in rest if word not in {"--global", "--session"}]
    if len(names) != 1 or names[0].startswith("--"):
        raise UsageError("/model takes one name.", hint="/help model shows how it is written.")
    if everywhere and context.role is not Role.OWNER:
        raise UsageError("Only an owner chooses the model of new sessions.")
    model = await context.models.choose(names[0], provider)
    # The prompt names the model, so the next turn writes a new one.
    change = SessionChange(model=model.name, provider=model.provider, system="")
    await context.conversation.change(change)
    where = "from the next message on"
    if everywhere:
        await context.models.keep(model)
        where += ", and for new sessions"
    return Told(f"Using {model.provider}/{model.name} {where}.")


def _take_provider(words: list[str]) -> str | None:
    """Take `--provider name` out of the words."""
    if "--provider" not in words:
        return None
    place = words.index("--provider")
    if place + 1 >= len(words):
        raise UsageError("--provider needs a name.", hint="/help model shows how it is written.")
    provider = words[place + 1]
    del words[place : place + 2]
    return provider


async def _status(context: Context, words: str) -> Reply:
    session = context.conversation.session
    rows = await context.conversation.messages()
    facts = [
        ("session", session.id + (f" “{session.title}”" if session.title else "")),
        ("messages", str(len(rows))),
        ("model", context.models.current(session)),
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
        f"  {use.provider}/{use.model}: {plural(use.calls, 'call')}, "
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
