"""`hermes slack manifest`: print the manifest from which Slack creates the app."""

from argparse import Namespace

import msgspec

from hermes.channels.slack.app_manifest import app_manifest
from hermes.cli.context import CliContext
from hermes.commands.registry import standard_commands
from hermes.commands.surface import Surface


def run(args: Namespace, context: CliContext) -> int:
    commands = [
        (command.name, command.summary)
        for command in sorted(standard_commands().commands, key=lambda command: command.name)
        if Surface.CHAT in command.availability.value
    ]
    manifest = app_manifest(args.name, commands)
    context.print(msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode())
    return 0
