"""The actions of `hermes tools`: list toolsets and turn them on or off."""

from argparse import Namespace
from collections.abc import Mapping

import msgspec

from hermes.app.service.lock import running_gateway
from hermes.app.toolsets import (
    check_platform,
    expand_toolsets,
    list_toolsets,
    settings_to_disable,
    settings_to_enable,
    shown_platforms,
)
from hermes.cli.context import CliContext, with_profile_flag
from hermes.cli.output import Printer
from hermes.config.dotenv import profile_env
from hermes.config.editor import set_setting
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.kit.terminal_text import single_line
from hermes.models.providers import EMBEDDED

ROLES_NOTE = (
    "In chats the sender's role restricts this further: guests have only the toolset safe,\n"
    "unless platforms.NAME.extra.roles changes it. Use /toolsets in a chat to see the result."
)

SMALL_MODEL_NOTE = (
    "The embedded model is small and gets only some of these: no memory, skills or delegation.\n"
    "For all of them, choose a larger model: hermes model"
)


def perform(args: Namespace, context: CliContext) -> int:
    home = context.home()
    config = load_config(home, profile_env(home.dotenv, context.env)).config
    if args.platform:
        check_platform(args.platform, config)
    if args.action == "list":
        return _list(args, context, config)
    plain = expand_toolsets(args.names, config)
    changes = settings_to_enable if args.action == "enable" else settings_to_disable
    written = changes(config, plain, args.platform)
    _write(home, context, written)
    where = f"on {args.platform}" if args.platform else "on all platforms"
    context.stdout.write(f"{', '.join(plain)}: {args.action}d {single_line(where)}\n")
    if not written:
        context.stderr.write("No change.\n")
    elif running_gateway(home) is not None:
        hint = "To apply this to the running gateway: hermes gateway restart\n"
        context.stderr.write(with_profile_flag(hint, context.profile))
    return 0


def _list(args: Namespace, context: CliContext, config: Config) -> int:
    platforms = [args.platform] if args.platform else shown_platforms(config)
    rows = list_toolsets(config, platforms)
    if args.json:
        context.stdout.write(msgspec.json.encode(rows).decode() + "\n")
        return 0
    printer = Printer(context)
    table = [("TOOLSET", *(single_line(one).upper() for one in platforms), "TOOLS")]
    for row in rows:
        marks = ["on" if row.on[one] else "off" for one in platforms]
        table.append((single_line(row.name), *marks, ", ".join(row.tools)))
    printer.table(table)
    missing = [
        f"{single_line(row.name)}: {single_line(why)}" for row in rows for why in row.missing
    ]
    if missing:
        printer.line("\nMissing:")
        for line in missing:
            printer.line(f"  {line}")
    if any(one != "cli" for one in platforms):
        printer.line("\n" + ROLES_NOTE)
    if config.main_model.provider == EMBEDDED:
        printer.line(with_profile_flag("\n" + SMALL_MODEL_NOTE, context.profile))
    hint = "\nChange: hermes tools enable|disable TOOLSET [--platform NAME]"
    printer.line(with_profile_flag(hint, context.profile))
    return 0


def _write(home: Home, context: CliContext, written: Mapping[str, list[str]]) -> None:
    env = profile_env(home.dotenv, context.env)
    for name, value in written.items():
        text = msgspec.json.encode(value).decode()
        for warning in set_setting(home, env, name, text).warnings:
            context.stderr.write(f"warning: {single_line(str(warning))}\n")
