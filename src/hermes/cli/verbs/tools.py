"""`hermes tools`: turn toolsets on or off, for all platforms or for one."""

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
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.config.editor import set_setting
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


def run(args: Namespace, context: CliContext) -> int:
    config = context.load_config().config
    if args.platform:
        check_platform(args.platform, config)
    if args.action == "list":
        return _list(args, context, config)
    plain = expand_toolsets(args.names, config)
    changes = settings_to_enable if args.action == "enable" else settings_to_disable
    written = changes(config, plain, args.platform)
    _write(context, written)
    where = single_line(args.platform) if args.platform else "all platforms"
    context.print(f"{', '.join(plain)}: {args.action}d on {where}")
    if not written:
        context.note("No change.")
    elif running_gateway(context.home()) is not None:
        hint = "To apply this to the running gateway: hermes gateway restart"
        context.note(context.with_profile(hint))
    return 0


def _list(args: Namespace, context: CliContext, config: Config) -> int:
    platforms = [args.platform] if args.platform else shown_platforms(config)
    rows = list_toolsets(config, platforms)
    if args.json:
        context.print_json(rows)
        return 0
    printer = Printer(context)
    table = [("TOOLSET", *(single_line(platform).upper() for platform in platforms), "TOOLS")]
    for row in rows:
        marks = ["on" if row.on[platform] else "off" for platform in platforms]
        table.append((single_line(row.name), *marks, ", ".join(row.tools)))
    printer.table(table)
    missing = [
        f"{single_line(row.name)}: {single_line(why)}" for row in rows for why in row.missing
    ]
    if missing:
        printer.line("\n  ".join(["\nMissing:", *missing]))
    if any(platform != "cli" for platform in platforms):
        printer.line("\n" + ROLES_NOTE)
    if config.main_model.provider == EMBEDDED:
        printer.line(context.with_profile("\n" + SMALL_MODEL_NOTE))
    hint = "\nChange: hermes tools enable|disable TOOLSET [--platform NAME]"
    printer.line(context.with_profile(hint))
    return 0


def _write(context: CliContext, written: Mapping[str, list[str]]) -> None:
    env = context.profile_env()
    for name, value in written.items():
        text = msgspec.json.encode(value).decode()
        for warning in set_setting(context.home(), env, name, text).warnings:
            context.note(f"warning: {single_line(str(warning))}")
