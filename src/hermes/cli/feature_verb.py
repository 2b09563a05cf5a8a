"""Run an action of a feature's verb on the command line."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from hermes.cli.arguments.features import BEFORE_ACTION
from hermes.cli.context import CliContext
from hermes.ports.feature import ActionCall, ActionReply, ArgumentValue
from hermes.ports.feature_catalog import FEATURES, feature_verb, load_attribute


def run_feature(feature: str) -> Callable[[Namespace, CliContext], int]:
    """The `run` function of the feature's command."""

    def run(args: Namespace, context: CliContext) -> int:
        values: dict[str, ArgumentValue] = vars(args)
        for option in feature_verb(feature).options:
            if values.get(option.key) is None:
                values[option.key] = values.get(f"{BEFORE_ACTION}{option.key}")
        if values.get("accept_hooks"):
            from hermes.cli.verbs.hooks import accept_hooks

            accept_hooks(context)
        reply = anyio.run(_call, feature, args.action, values, context)
        if args.json and reply.data is not None:
            context.print_json(reply.data)
        elif reply.text:
            context.print(context.with_profile(reply.text))
        return reply.code

    return run


async def _call(
    feature: str, action: str, values: dict[str, ArgumentValue], context: CliContext
) -> ActionReply:
    opening: Any = load_attribute(FEATURES[feature].open)
    async with opening(context.home(), context.env) as service:
        say = context.note if values.get("json") else context.print
        call = ActionCall(values=values, folder=str(Path.cwd()), say=say)
        return await feature_verb(feature).find(action).run(service, call)
