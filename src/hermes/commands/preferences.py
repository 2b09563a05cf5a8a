"""Slash commands that choose the model, its reasoning effort, the personality and the runtime."""

from hermes.commands.command import Command, CommandContext, require_service
from hermes.commands.services import SettingsControl
from hermes.commands.surface import TerminalAbility
from hermes.config.setting_warnings import EFFORTS
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.sessions import SessionChange
from hermes.schema.terminal import BusyMode, CommandReply, TextReply

_NO_PERSONALITY = ("none", "default", "off")
_PROGRESS_LEVELS = ("off", "new", "all", "verbose")
_CHAT_LEVELS = ("off", "all")
"""A chat shows the tool calls of a turn, or none."""


async def _model(context: CommandContext, args: str) -> CommandReply:
    if not args:
        return TextReply(await _models(context))
    rest = args.split()
    provider = _take_provider(rest)
    everywhere, force = _take_flag(rest, "--global"), _take_flag(rest, "--force")
    names = [word for word in rest if word != "--session"]
    if len(names) != 1 or names[0].startswith("--"):
        raise UsageError("/model takes one name.", hint="/help model shows its options.")
    if everywhere and not context.is_owner:
        raise UsageError("Only an owner may choose the model of new sessions.")
    problem = "" if force else await context.models.check_name(names[0], provider)
    model = await context.models.choose(names[0], provider)
    # The prompt names the model, so the next turn writes a new one.
    change = SessionChange(model=model.name, provider=model.provider, system="")
    await context.conversation.change(change)
    removed = await context.models.save_default(model) if everywhere else ()
    where = " and in new sessions" if everywhere else ""
    lines = [f"Using {model.provider}/{model.name}, starting with the next message{where}."]
    if removed:
        lines.append(f"Removed settings of the previous provider: {', '.join(removed)}.")
    return TextReply("\n".join([*lines, f"warning: {problem}"] if problem else lines))


async def _models(context: CommandContext) -> str:
    current = context.models.current(context.conversation.session)
    offers = context.services.model_offers
    names = await offers.offers() if offers is not None else ()
    if not names:
        return f"The model is {current}. Change it with: /model NAME"
    lines = [f"  {name}" for name in names]
    return "\n".join([f"The model is {current}. Change it with /model NAME; available:", *lines])


def _take_provider(args: list[str]) -> str | None:
    """Remove `--provider name` from the arguments and return the name."""
    if "--provider" not in args:
        return None
    index = args.index("--provider")
    if index + 1 >= len(args):
        raise UsageError("--provider needs a name.", hint="/help model shows its options.")
    provider = args[index + 1]
    del args[index : index + 2]
    return provider


def _take_flag(args: list[str], flag: str) -> bool:
    if flag not in args:
        return False
    args.remove(flag)
    return True


async def _reasoning(context: CommandContext, args: str) -> CommandReply:
    rest = args.lower().split()
    everywhere = _take_flag(rest, "--global")
    if not rest and not everywhere:
        return TextReply(_effort_text(context))
    if len(rest) != 1 or rest[0] not in EFFORTS:
        raise UsageError("/reasoning takes one of: " + ", ".join(EFFORTS) + ".")
    (effort,) = rest
    if everywhere and not context.is_owner:
        raise UsageError("Only an owner may choose the reasoning effort of new sessions.")
    settings = _settings(context) if everywhere else None
    await context.conversation.change(SessionChange(effort=effort))
    if settings is not None:
        await settings.save_effort(effort)
    default = ", and as the default" if settings else ""
    return TextReply(f"Reasoning effort {effort}, starting with the next message{default}.")


def _effort_text(context: CommandContext) -> str:
    settings = context.services.settings
    default = settings.effort() if settings is not None else ""
    effort = context.conversation.session.effort or default or "the model's default"
    return f"Reasoning effort: {effort}. Available: {', '.join(EFFORTS)}."


def _settings(context: CommandContext) -> SettingsControl:
    return require_service(context.services.settings, "Settings cannot be changed from here.")


async def _personality(context: CommandContext, args: str) -> CommandReply:
    settings = _settings(context)
    known = settings.personalities()
    name = args.lower()
    if not args:
        return TextReply(_personalities(context, settings))
    if name not in _NO_PERSONALITY and name not in known:
        raise UsageError(f"Unknown personality: {args}.", hint="/personality lists them.")
    chosen = "none" if name in _NO_PERSONALITY else name
    # It is part of the prompt, so the next turn writes a new one.
    await context.conversation.change(SessionChange(personality=chosen, system=""))
    personality = "No personality" if chosen == "none" else f"Personality {chosen}"
    return TextReply(f"{personality}, starting with the next message.")


def _personalities(context: CommandContext, settings: SettingsControl) -> str:
    known = settings.personalities()
    current = context.conversation.session.personality or settings.personality() or "none"
    width = max((len(name) for name in known), default=0)
    lines: list[str] = []
    for name, text in sorted(known.items()):
        # Personalities may begin with similar headings.
        body = [line for line in text.splitlines() if not line.startswith("#")]
        lines.append(f"  {name:<{width}}  {one_line(' '.join(body), 60)}")
    return "\n".join([f"The personality is {current}. Available:", *lines, "  none"])


async def _busy(context: CommandContext, args: str) -> CommandReply:
    control = context.control
    current = control.busy_mode()
    if current is None:
        raise UsageError("Messages cannot be sent here while a turn is running.")
    word = args.lower()
    if word in {"", "status"}:
        return TextReply(
            f"While a turn is running, a message will {_BUSY_EFFECTS[current]}. "
            f"Available: {_BUSY_MODES}."
        )
    if word not in set(BusyMode):
        raise UsageError(f"/busy takes one of: {_BUSY_MODES}.")
    if not context.is_owner:
        raise UsageError("Only an owner may change this, because it applies to everyone.")
    mode = BusyMode(word)
    if context.services.settings is not None:
        await context.services.settings.save_busy_mode(mode)
    control.set_busy_mode(mode)
    effect = _BUSY_EFFECTS[mode]
    return TextReply(f"Starting with the next turn, a message during a turn will {effect}.")


_BUSY_EFFECTS = {
    BusyMode.INTERRUPT: "interrupt it",
    BusyMode.QUEUE: "be queued as a separate turn",
    BusyMode.STEER: "be passed to it",
    BusyMode.COLLECT: "be queued and answered together with the others",
}
_BUSY_MODES = ", ".join(BusyMode)


_RUNTIME_NAMES = {
    "auto": "auto",
    "off": "auto",
    "codex_app_server": "codex_app_server",
    "codex": "codex_app_server",
    "on": "codex_app_server",
}
_RUNTIME_TEXT = {
    "auto": "Turns are run by Hermes.",
    "codex_app_server": "Turns with OpenAI models are run by codex.",
}


async def _codex_runtime(context: CommandContext, args: str) -> CommandReply:
    runtimes = context.services.runtimes
    runtimes = require_service(runtimes, "The runtime cannot be changed from here.")
    word = args.strip().lower()
    if word in {"", "status"}:
        current = runtimes.current()
        return TextReply(f"{_RUNTIME_TEXT[current]} (model.openai_runtime: {current})")
    if word not in _RUNTIME_NAMES:
        raise UsageError("/codex-runtime takes auto or codex_app_server.")
    return TextReply(await runtimes.choose(_RUNTIME_NAMES[word]))


async def _verbose(context: CommandContext, args: str) -> CommandReply:
    if not _can_change_progress(context):
        raise _cannot_change_progress(context)
    platform = context.caller.platform if context.in_chat else ""
    levels = _CHAT_LEVELS if context.in_chat else _PROGRESS_LEVELS
    settings, level = context.services.settings, args.lower()
    if not level:
        current = settings.progress(platform) if settings is not None else ""
        index = levels.index(current) if current in levels else -1
        level = levels[(index + 1) % len(levels)]
    if level not in levels:
        raise UsageError(f"/verbose takes one of: {', '.join(levels)}.")
    if settings is not None:
        await settings.save_progress(level, platform)
    if platform:
        return TextReply(f"Tool progress on {platform}: {level}.")
    return TextReply(f"Tool progress: {level}.", progress=level)


def _can_change_progress(context: CommandContext) -> bool:
    if not context.in_chat:
        return TerminalAbility.PROGRESS in context.caller.abilities
    settings = context.services.settings
    return context.is_owner and settings is not None and settings.offers_progress_in_chats()


def _cannot_change_progress(context: CommandContext) -> UsageError:
    if not context.in_chat:
        return UsageError("This terminal does not support that.")
    if not context.is_owner:
        return UsageError("Only an owner may use /verbose in a chat.")
    return UsageError(
        "/verbose is not enabled in chats.",
        hint="Run `hermes config set display.tool_progress_command true` and restart the gateway.",
    )


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
        summary="Show or change the reasoning effort; --global also as the default.",
        run=_reasoning,
    ),
    Command(
        name="personality",
        usage="[name]",
        summary="Show or change the personality of this session.",
        run=_personality,
    ),
    Command(
        name="busy",
        usage="[interrupt|queue|steer|collect]",
        summary="Show or change what happens to a message during a turn.",
        is_available=lambda context: context.accepts_input_while_busy,
        run=_busy,
    ),
    Command(
        name="verbose",
        usage="[off|new|all|verbose]",
        summary="Change how much tool progress is shown.",
        is_available=_can_change_progress,
        run=_verbose,
    ),
    Command(
        name="codex-runtime",
        summary="Choose whether codex or Hermes runs turns with OpenAI models.",
        usage="[auto | codex_app_server]",
        run=_codex_runtime,
        aliases=("codex_runtime",),
        owner_only=True,
        is_available=lambda context: context.services.runtimes is not None,
    ),
)
