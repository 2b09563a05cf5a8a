"""`hermes mcp`: manage the MCP servers that add tools."""

import logging
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import anyio

from hermes.app.mcp_settings import McpSettings
from hermes.app.service.lock import running_gateway
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.kit.terminal_text import single_line
from hermes.kit.text import one_line, plural
from hermes.logs import LOGGERS
from hermes.mcp.servers import ConnectionTest
from hermes.schema.errors import UsageError
from hermes.schema.tools import Effect


class McpAction:
    def __init__(self, context: CliContext) -> None:
        self.context = context
        self.home = context.home()
        env = context.profile_env()
        self.settings = McpSettings(self.home, env, context.load_config(), str(Path.cwd()))

    def hint(self, text: str) -> None:
        self.context.note(self.context.with_profile(text))


def run(args: Namespace, context: CliContext) -> int:
    action = McpAction(context)
    match args.action:
        case "list":
            return _list(action, as_json=args.json)
        case "add":
            return _add(action, args)
        case "remove":
            return _remove(action, args.name)
        case _:
            return _test(action, args.name, as_json=args.json)


def _list(action: McpAction, *, as_json: bool) -> int:
    rows = action.settings.rows()
    if as_json:
        action.context.print_json(rows)
        return 0
    if not rows:
        action.context.print("No MCP servers configured.")
        action.hint("Add one: hermes mcp add NAME --command PROGRAM --args …, or --url URL")
        return 0
    table = [("SERVER", "STATE", "WHERE")]
    table += [
        (single_line(row.name), row.state, single_line(row.trouble or row.where)) for row in rows
    ]
    Printer(action.context).table(table)
    return 0


def _add(action: McpAction, args: Namespace) -> int:
    if args.name in action.settings.servers and not args.force:
        raise UsageError(
            f"The MCP server {args.name!r} already exists.", hint="To replace it, add --force."
        )
    fields: dict[str, object] = {
        "url": args.url,
        "transport": "sse" if args.sse else "",
        "headers": _pairs(args.header, "--header"),
        "command": args.command,
        "args": args.args,
        "env": _pairs(args.env, "--env"),
        "cwd": str(Path.cwd()) if _names_relative_file(args.command, args.args) else "",
        "sandbox": args.sandbox,
    }
    settings = {name: value for name, value in fields.items() if value}
    for warning in action.settings.add(args.name, settings).warnings:
        action.hint(f"warning: {single_line(str(warning))}")
    action.context.print(f"Added: {args.name}")
    if trouble := McpAction(action.context).settings.trouble(args.name):
        action.hint(f"warning: {single_line(trouble)}")
    action.hint(f"Test it: hermes mcp test {args.name}")
    _print_reload_hint(action)
    return 0


def _names_relative_file(command: str, words: Iterable[str]) -> bool:
    """Whether a word is a path relative to the current folder, which must then be stored."""
    named = [*([command] if "/" in command else []), *words]
    return any(not one.startswith(("/", "~", "-")) and Path(one).exists() for one in named if one)


def _pairs(texts: Iterable[str], flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, sign, _ in pairs if not sign or not name.strip()]:
        raise UsageError(f"{flag} takes NAME=VALUE, not {wrong[0]!r}.")
    return {name.strip(): value for name, _, value in pairs}


def _remove(action: McpAction, name: str) -> int:
    action.settings.remove(name)
    action.context.print(f"Removed: {single_line(name)}")
    _print_reload_hint(action)
    return 0


def _print_reload_hint(action: McpAction) -> None:
    if running_gateway(action.home) is not None:
        action.hint("To apply this: /reload-mcp in a chat, or restart the gateway.")


def _test(action: McpAction, name: str, *, as_json: bool) -> int:
    action.settings.get(name)
    # Errors are printed below; keep the log off the screen.
    for logger in LOGGERS:
        logging.getLogger(logger).addHandler(logging.NullHandler())
    result = anyio.run(action.settings.test, name)
    if as_json:
        action.context.print_json(result)
    elif result.error:
        action.context.note(f"{single_line(name)}: {single_line(result.error)}")
    else:
        _print(action, name, result)
    return int(bool(result.error))


def _print(action: McpAction, name: str, result: ConnectionTest) -> None:
    action.context.print(
        f"{single_line(name)}: {single_line(result.version)}, {plural(len(result.tools), 'tool')}"
    )
    if not result.tools:
        return
    table = [("TOOL", "", "DESCRIPTION")]
    for tool in result.tools:
        effect = "reads" if tool.effect is Effect.READ else "asks"
        table.append((tool.name, effect, one_line(tool.description, 80)))
    Printer(action.context).table(table)
