"""Commands that choose: the model, how hard it thinks, how it speaks, what interrupts it."""

from hermes.commands.command import Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import SettingsControl
from hermes.commands.surface import BusyMode
from hermes.kit.text import one_line
from hermes.ports.model import EFFORTS
from hermes.schema.errors import UsageError
from hermes.schema.sessions import SessionChange

_NO_PERSONALITY = ("none", "default", "off")


async def _model(context: CommandContext, words: str) -> CommandReply:
    if not words:
        return TextReply(await _models(context))
    rest = words.split()
    provider = _take_provider(rest)
    everywhere, force = _take_flag(rest, "--global"), _take_flag(rest, "--force")
    names = [word for word in rest if word != "--session"]
    if len(names) != 1 or names[0].startswith("--"):
        raise UsageError("/model takes one name.", hint="/help model shows how it is written.")
    if everywhere and not context.is_owner:
        raise UsageError("Only an owner chooses the model of new sessions.")
    doubt = "" if force else await context.models.doubt(names[0], provider)
    model = await context.models.choose(names[0], provider)
    # The prompt names the model, so the next turn writes a new one.
    change = SessionChange(model=model.name, provider=model.provider, system="")
    await context.conversation.change(change)
    where = "from the next message on"
    removed = await context.models.keep(model) if everywhere else ()
    if everywhere:
        where += ", and for new sessions"
    told = [f"Using {model.provider}/{model.name} {where}."]
    if removed:
        told.append(f"Removed from the settings of the former provider: {', '.join(removed)}.")
    return TextReply("\n".join([*told, f"warning: {doubt}"] if doubt else told))


async def _models(context: CommandContext) -> str:
    current = context.models.current(context.conversation.session)
    offers = context.services.offers
    names = await offers.offers() if offers is not None else ()
    if not names:
        return f"The model is {current}. /model NAME takes another."
    lines = [f"  {name}" for name in names]
    return "\n".join([f"The model is {current}. /model takes one of these:", *lines])


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


def _take_flag(words: list[str], flag: str) -> bool:
    if flag not in words:
        return False
    words.remove(flag)
    return True


async def _reasoning(context: CommandContext, words: str) -> CommandReply:
    rest = words.lower().split()
    everywhere = _take_flag(rest, "--global")
    if not rest and not everywhere:
        return TextReply(_effort_text(context))
    if len(rest) != 1 or rest[0] not in EFFORTS:
        raise UsageError("/reasoning takes one of these: " + ", ".join(EFFORTS) + ".")
    (effort,) = rest
    if everywhere and not context.is_owner:
        raise UsageError("Only an owner chooses the reasoning of new sessions.")
    settings = _settings(context) if everywhere else None
    await context.conversation.change(SessionChange(effort=effort))
    if settings is None:
        return TextReply(f"Reasoning effort {effort} from the next message on.")
    await settings.save_effort(effort)
    return TextReply(
        f"Reasoning effort {effort} from the next message on, and wherever nothing else was chosen."
    )


def _effort_text(context: CommandContext) -> str:
    settings = context.services.settings
    usual = settings.effort() if settings is not None else ""
    effort = context.conversation.session.effort or usual or "as the model likes"
    return f"Reasoning effort: {effort}. It can be {', '.join(EFFORTS)}."


def _settings(context: CommandContext) -> SettingsControl:
    settings = context.services.settings
    if settings is None:
        raise UsageError("The settings cannot be changed from here.")
    return settings


async def _personality(context: CommandContext, words: str) -> CommandReply:
    settings = _settings(context)
    known = settings.personalities()
    name = words.lower()
    if not words:
        return TextReply(_personalities(context, settings))
    if name not in _NO_PERSONALITY and name not in known:
        raise UsageError(
            f"There is no personality {words!r}.", hint="/personality lists those there are."
        )
    chosen = "none" if name in _NO_PERSONALITY else name
    # It is part of the prompt, so the next turn writes a new one.
    await context.conversation.change(SessionChange(personality=chosen, system=""))
    if chosen == "none":
        return TextReply("No personality from the next message on.")
    return TextReply(f"Personality {chosen} from the next message on.")


def _personalities(context: CommandContext, settings: SettingsControl) -> str:
    known = settings.personalities()
    current = context.conversation.session.personality or settings.personality() or "none"
    width = max((len(name) for name in known), default=0)
    lines = [f"  {name:<{width}}  {_opening_words(text)}" for name, text in sorted(known.items())]
    return "\n".join([f"The personality is {current}. There are:", *lines, "  none"])


def _opening_words(text: str) -> str:
    """The beginning of what it says, without headings, which are much alike."""
    said = [line for line in text.splitlines() if not line.startswith("#")]
    return one_line(" ".join(said), 60)


async def _busy(context: CommandContext, words: str) -> CommandReply:
    work = context.work
    current = work.manner()
    if current is None:
        raise UsageError("Nothing can be said here while a turn is running.")
    word = words.lower()
    if word in {"", "status"}:
        return TextReply(
            f"While a turn runs, what you say will {_BUSY_EFFECTS[current]}. "
            f"It can be {_BUSY_MODES}."
        )
    if word not in set(BusyMode):
        raise UsageError(f"/busy takes one of these: {_BUSY_MODES}.")
    if not context.is_owner:
        raise UsageError("Only an owner chooses that, for it holds for everybody.")
    manner = BusyMode(word)
    if context.services.settings is not None:
        await context.services.settings.save_busy_mode(manner)
    work.change_manner(manner)
    return TextReply(
        f"From the next turn on, what you say while it runs will {_BUSY_EFFECTS[manner]}."
    )


_BUSY_EFFECTS = {
    BusyMode.INTERRUPT: "interrupt it",
    BusyMode.QUEUE: "wait, and each message gets a turn of its own",
    BusyMode.STEER: "be passed on to it",
    BusyMode.COLLECT: "wait, and all of it is answered in one turn",
}
_BUSY_MODES = ", ".join(BusyMode)


COMMANDS = (
    Command(
        name="model",
        usage="[name] [--provider p] [--global] [--force]",
        summary="Show or change the model; --global also for new sessions.",
        run=_model,
    ),
    Command(
        name="reasoning",
        usage="[effort] [--global]",
        summary="Show or change how hard the model thinks; --global wherever nobody chose.",
        run=_reasoning,
    ),
    Command(
        name="personality",
        usage="[name]",
        summary="Show or change how the agent speaks in this session.",
        run=_personality,
    ),
    Command(
        name="busy",
        usage="[interrupt|queue|steer|collect]",
        summary="Show or change what a message does while a turn is running.",
        needs=lambda context: context.accepts_input_while_busy,
        run=_busy,
    ),
)


_RUNTIME_NAMES = {
    "auto": "auto",
    "off": "auto",
    "codex_app_server": "codex_app_server",
    "codex": "codex_app_server",
    "on": "codex_app_server",
}
_RUNTIME_TEXT = {
    "auto": "Turns are run by our own loop.",
    "codex_app_server": "Turns with OpenAI's models are run by codex.",
}


async def _codex_runtime(context: CommandContext, words: str) -> CommandReply:
    runtimes = context.services.runtimes
    if runtimes is None:
        raise UsageError("The runtime cannot be chosen from here.")
    word = words.strip().lower()
    if word in {"", "status"}:
        current = runtimes.current()
        return TextReply(f"{_RUNTIME_TEXT[current]} (model.openai_runtime: {current})")
    if word not in _RUNTIME_NAMES:
        raise UsageError("/codex-runtime takes auto or codex_app_server.")
    return TextReply(await runtimes.choose(_RUNTIME_NAMES[word]))


RUNTIME_COMMANDS = (
    Command(
        name="codex-runtime",
        summary="Let codex run the turns, or our own loop.",
        usage="[auto | codex_app_server]",
        run=_codex_runtime,
        aliases=("codex_runtime",),
        owners=True,
        needs=lambda context: context.services.runtimes is not None,
    ),
)
