"""Turn the verbs of features into slash commands with the same actions and flags."""

import shlex
from typing import Any

from hermes.commands.command import Command, CommandContext
from hermes.ports.feature import Action, ActionCall, Argument, ArgumentKind, ArgumentValue, Verb
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text
from hermes.schema.scope import Requester, Scope
from hermes.schema.terminal import CommandReply, SubmitReply, TextReply


def feature_command(feature: str, verb: Verb[Any]) -> Command:
    """Return the command of a feature; the context provides its service.

    Most actions are owner-only.
    """

    async def run(context: CommandContext, args: str) -> CommandReply:
        services = context.services.features
        if services is None:
            raise UsageError(f"/{verb.name} is not available here.")
        if not context.is_owner:
            _check_action(verb, args)
        action, values = parse_action(verb, args)
        call = ActionCall(
            values=values,
            scope=await _scope(context, opened=verb.in_session),
            folder=context.conversation.session.cwd,
        )
        reply = await action.run(services.get(feature), call)
        if reply.submit:
            return SubmitReply((Text(reply.submit),), notice=reply.text)
        return TextReply(reply.text)

    return Command(
        name=verb.name,
        usage=verb.usage,
        summary=verb.summary,
        owner_only=not any(one.for_others for one in verb.actions),
        run=run,
        is_available=lambda context: context.services.features is not None,
    )


def _check_action(verb: Verb[Any], args: str) -> None:
    """Raise `UsageError` unless the action is for people other than the owner."""
    allowed = [action for action in verb.actions if action.for_others]
    name = next(iter(action_first(verb, split_words(args))), verb.default)
    if not any(name in (action.name, *action.aliases) for action in allowed):
        names = ", ".join(action.name for action in allowed)
        raise UsageError(f"Only an owner may do that with /{verb.name}.", hint=f"You may: {names}.")


def action_first(verb: Verb[Any], words: list[str]) -> list[str]:
    """Move options that precede the action behind it."""
    flags = {option.name for option in verb.options}
    if not words or words[0].partition("=")[0] not in flags:
        return words
    count = 1 if "=" in words[0] else 2
    return [*action_first(verb, words[count:]), *words[:count]]


async def _scope(context: CommandContext, *, opened: bool) -> Scope:
    """Return the scope of the command's session; in a chat without one, that of `opened`."""
    session, caller = context.conversation.session, context.caller
    if opened and context.in_chat and not context.conversation.started:
        session = (await context.control.start_session("")).session
    program = context.services.program
    return Scope(
        profile=program.profile if program is not None else "",
        session=session.id,
        run="",
        workspace=session.cwd,
        principal=caller.principal,
        address=caller.address,
        role=context.role,
        source=session.source,
        key=session.key,
        asker=Requester(user=caller.person.id, name=caller.person.name),
    )


def parse_action(verb: Verb[Any], args: str) -> tuple[Action[Any], dict[str, ArgumentValue]]:
    """The action and its arguments. Raises `UsageError`."""
    if verb.fallback and not _names_action(verb, args):
        action = verb.find(verb.fallback)
        place = next(
            argument for argument in action.arguments if argument.kind is ArgumentKind.WORDS
        )
        return action, {place.key: args}
    name, *words = action_first(verb, split_words(args)) or [verb.default]
    action = verb.find(name)
    return action, parse_words(verb.name, action, words)


def _names_action(verb: Verb[Any], args: str) -> bool:
    """Whether the text begins with an action; one without arguments must stand alone."""
    name, _, rest = args.strip().partition(" ")
    names = {alias: action for action in verb.actions for alias in (action.name, *action.aliases)}
    if not name:
        return True
    return name in names and (bool(names[name].arguments) or not rest.strip())


def split_words(text: str) -> list[str]:
    try:
        # Chat apps turn quotation marks into typographic ones.
        return shlex.split(text.translate({0x201C: '"', 0x201D: '"'}))
    except ValueError as error:
        raise UsageError(f"The quotation marks do not match: {text}") from error


def parse_words(verb: str, action: Action[Any], words: list[str]) -> dict[str, ArgumentValue]:
    """The arguments of an action by key. Raises `UsageError` as the command line would."""
    flags = {argument.name: argument for argument in action.arguments if argument.is_flag}
    positional = [argument for argument in action.arguments if not argument.is_flag]
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
        elif positional:
            expected = (
                positional[0] if positional[0].kind is ArgumentKind.WORDS else positional.pop(0)
            )
            _add_value(values, expected, word)
        else:
            raise UsageError(f"/{verb} {action.name}: unexpected {word!r}.")
    for expected in (*positional, *flags.values()):
        if expected.required and expected.key not in values:
            raise UsageError(
                f"/{verb} {action.name}: {expected.name} is missing.", hint=expected.help
            )
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
