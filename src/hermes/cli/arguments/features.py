"""The arguments of commands that features register."""

from argparse import Action as ParserAction
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hermes.cli.parser import add_actions, add_json_flag, add_switch
from hermes.ports.feature import Action, Argument, ArgumentKind
from hermes.ports.feature_catalog import FEATURES, feature_verb

BEFORE_ACTION = "before_"
"""Prefix for the names of values that precede the action."""


def add_verb(name: str, parser: ArgumentParser) -> None:
    """Add the actions of a feature's verb, each with `--json`."""
    verb = feature_verb(name)
    for option in verb.options:
        # Use another name, because the default of the action's own flag would replace the value.
        dest = f"{BEFORE_ACTION}{option.key}"
        parser.add_argument(option.name, dest=dest, metavar=option.key.upper(), help=option.help)
    actions = add_actions(parser)
    for action in verb.actions:
        for alias in (action.name, *action.aliases):
            about = action.summary if alias == action.name else f"the same as {action.name}"
            parsed = actions.add_parser(alias, help=about, description=_sentence(action))
            _add_action(parsed, action)


def _add_action(parser: ArgumentParser, action: Action[Any]) -> None:
    parser.set_defaults(action=action.name)
    for argument in action.arguments:
        _add_argument(parser, argument)
    if action.runs_agent:
        add_switch(parser, "--accept-hooks", "accept all configured hooks")
    add_json_flag(parser)


def _add_argument(parser: ArgumentParser, argument: Argument) -> None:
    options: dict[str, Any] = {"help": argument.help, "default": None}
    match argument.kind:
        case ArgumentKind.SWITCH:
            options |= {"action": "store_true"}
        case ArgumentKind.LIST:
            options |= {"action": "append", "metavar": argument.key.upper()}
        case ArgumentKind.WORDS:
            options |= {"nargs": "*", "metavar": argument.key.upper(), "action": _JoinWords}
        case ArgumentKind.NUMBER:
            options |= {"type": int, "metavar": "N"}
        case ArgumentKind.TEXT:
            options |= {"metavar": argument.key.upper()}
    if argument.choices:
        options |= {"choices": argument.choices}
    if argument.is_flag:
        options |= {"dest": argument.key, "required": argument.required}
    elif not argument.required and argument.kind is not ArgumentKind.WORDS:
        options["nargs"] = "?"
    parser.add_argument(argument.name, **options)


class _JoinWords(ParserAction):
    """Joins the remaining words to one text; none is None."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, " ".join(values or ()) or None)


def _sentence(action: Action[Any]) -> str:
    return f"{action.summary[:1].upper()}{action.summary[1:]}."


ARGUMENTS: Mapping[str, Callable[[ArgumentParser], None]] = {
    name: partial(add_verb, name) for name, entry in FEATURES.items() if entry.verb
}
