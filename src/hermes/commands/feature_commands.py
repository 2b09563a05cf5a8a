"""Turn the verbs of features into slash commands with the same actions and flags."""

import shlex
from typing import Any

from hermes.commands.command import Command, CommandContext
from hermes.ports.feature import Action, ActionCall, Argument, ArgumentKind, ArgumentValue, Verb
from hermes.schema.errors import UsageError
from hermes.schema.terminal import CommandReply, TextReply


def feature_command(verb: Verb[Any]) -> Command:
    """A command for the owner; the service of the feature comes with the context."""

    async def run(context: CommandContext, args: str) -> CommandReply:
        services = context.services.features
        if services is None:
            raise UsageError(f"/{verb.name} is not available here.")
        name, *words = split_words(args) or [verb.default]
        action = verb.find(name)
        address = context.caller.address
        call = ActionCall(
            values=parse_words(verb.name, action, words),
            address=address,
            folder=context.conversation.session.cwd,
        )
        reply = await action.run(services.get(verb.name), call)
        return TextReply(reply.text)

    return Command(
        name=verb.name,
        usage="[action]",
        summary=verb.summary,
        owner_only=True,
        run=run,
        is_available=lambda context: context.services.features is not None,
    )


def split_words(text: str) -> list[str]:
    try:
        # Chat apps turn quotation marks into typographic ones.
        return shlex.split(text.translate({0x201C: '"', 0x201D: '"'}))
    except ValueError as error:
        raise UsageError(f"The quotation marks do not match: {text}") from error


def parse_words(verb: str, action: Action[Any], words: list[str]) -> dict[str, ArgumentValue]:
    """The arguments of an action by key. Raises `UsageError` as the command line would."""
    flags = {one.name: one for one in action.arguments if one.is_flag}
    places = [one for one in action.arguments if not one.is_flag]
    values: dict[str, ArgumentValue] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            if (flag := flags.get(name)) is None:
                known = ", ".join(flags)
                raise UsageError(f"/{verb} {action.name}: unknown flag {name}.", hint=known)
            if flag.kind is ArgumentKind.SWITCH:
                values[flag.key] = True
                continue
            if not equals and not rest:
                raise UsageError(f"/{verb} {action.name}: {name} needs a value.")
            _add_value(values, flag, value if equals else rest.pop(0))
        elif places:
            place = places[0] if places[0].kind is ArgumentKind.WORDS else places.pop(0)
            _add_value(values, place, word)
        else:
            raise UsageError(f"/{verb} {action.name}: unexpected {word!r}.")
    for place in (*places, *flags.values()):
        if place.required and place.key not in values:
            raise UsageError(f"/{verb} {action.name}: {place.name} is missing.", hint=place.help)
    return values


def _add_value(values: dict[str, ArgumentValue], argument: Argument, text: str) -> None:
    match argument.kind:
        case ArgumentKind.NUMBER:
            if not text.lstrip("-").isdecimal():
                raise UsageError(f"{argument.name} must be a whole number, not {text!r}.")
            values[argument.key] = int(text)
        case ArgumentKind.LIST:
            before = values.get(argument.key)
            known = list(before) if isinstance(before, list) else []
            values[argument.key] = [*known, text]
        case ArgumentKind.WORDS:
            values[argument.key] = f"{values.get(argument.key) or ''} {text}".strip()
        case ArgumentKind.TEXT | ArgumentKind.SWITCH:
            if argument.choices and text not in argument.choices:
                known = ", ".join(argument.choices)
                raise UsageError(f"{argument.name} must be one of: {known}.")
            values[argument.key] = text
