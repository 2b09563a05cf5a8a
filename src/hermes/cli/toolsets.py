"""What `hermes tools` does: show which toolsets are on where, and switch them."""

from argparse import Namespace
from collections.abc import Mapping

import msgspec

from hermes.app.switching import (
    check_platform,
    disabled,
    enabled,
    plain_toolsets,
    shown_toolsets,
    worth_a_column,
)
from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat
from hermes.cli.next_step import as_typed
from hermes.cli.verbs.sessions.paper import Paper
from hermes.config.dotenv import env_of
from hermes.config.edit import set_setting
from hermes.config.home import Home
from hermes.config.load import load_config
from hermes.config.schema import Config
from hermes.daemon.lock import who_holds
from hermes.models.providers import EMBEDDED

ROLES = (
    "In chats the role of whoever asks cuts further: a guest only reads, with the toolset safe,\n"
    "unless platforms.NAME.extra.roles says otherwise; /toolsets in the chat shows what is left."
)

FEW = (
    "The model of this machine is small and is offered only a few of these: no memory, no skills,\n"
    "no delegation. A larger one has them all: hermes model"
)


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    config = load_config(home, env_of(home.dotenv, context.env)).config
    if args.platform:
        check_platform(args.platform, config)
    if args.action == "list":
        return _list(args, context, config)
    plain = plain_toolsets(args.names, config)
    changes = enabled if args.action == "enable" else disabled
    written = changes(config, plain, args.platform)
    _write(home, context, written)
    where = f"on {args.platform}" if args.platform else "on all platforms"
    context.stdout.write(f"{', '.join(plain)}: {args.action}d {flat(where)}\n")
    if not written:
        context.stderr.write("It was so already; nothing was changed.\n")
    elif who_holds(home) is not None:
        hint = "The gateway takes it up when it starts: hermes gateway restart\n"
        context.stderr.write(as_typed(hint, context.profile))
    return 0


def _list(args: Namespace, context: CliContext, config: Config) -> int:
    platforms = [args.platform] if args.platform else worth_a_column(config)
    rows = shown_toolsets(config, platforms)
    if args.json:
        context.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return 0
    paper = Paper(context)
    table = [("TOOLSET", *(flat(one).upper() for one in platforms), "TOOLS")]
    for row in rows:
        marks = ["on" if row.on[one] else "off" for one in platforms]
        table.append((flat(row.name), *marks, ", ".join(row.tools)))
    paper.table(table)
    lacking = [f"{flat(row.name)}: {flat(why)}" for row in rows for why in row.missing]
    if lacking:
        paper.line("\nMissing:")
        for line in lacking:
            paper.line(f"  {line}")
    if any(one != "cli" for one in platforms):
        paper.line("\n" + ROLES)
    if config.main_model.provider == EMBEDDED:
        paper.line(as_typed("\n" + FEW, context.profile))
    hint = "\nChange it with: hermes tools enable|disable TOOLSET [--platform NAME]"
    paper.line(as_typed(hint, context.profile))
    return 0


def _write(home: Home, context: CliContext, written: Mapping[str, list[str]]) -> None:
    env = env_of(home.dotenv, context.env)
    for name, value in written.items():
        text = msgspec.json.encode(value).decode()
        for warning in set_setting(home, env, name, text).warnings:
            context.stderr.write(f"warning: {flat(str(warning))}\n")
