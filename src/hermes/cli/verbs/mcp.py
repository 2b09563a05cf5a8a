"""`hermes mcp`: manage the MCP servers that add tools."""

import logging
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.app.service.lock import running_gateway
from hermes.app.storage import open_blobs
from hermes.app.toolbox import reserved_toolsets
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.config.editor import set_setting, unset_setting
from hermes.config.loader import expand_references, load_config
from hermes.config.sections.execution import McpServer
from hermes.config.values import format_path
from hermes.config.variables import is_secret_name, secret_values, secrets_in
from hermes.kit.clock import SystemClock
from hermes.kit.redact import MASK, Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, one_line, plural
from hermes.logs import LOGGERS
from hermes.mcp.servers import ConnectionTest, test_connection
from hermes.mcp.settings import ServerContext, server_config
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ConfigError, NotFound, UsageError
from hermes.schema.tools import Effect


class ServerRow(Struct, frozen=True, kw_only=True):
    """A server as `--json` prints it."""

    name: str
    state: str
    where: str = ""
    trouble: str = ""


class McpAction:
    def __init__(self, context: CliContext) -> None:
        self.context = context
        self.home = context.home()
        self.env = context.profile_env()
        self.checks = ServerContext(self.env, self.home.path, str(Path.cwd()), reserved_toolsets())
        self.loaded = context.load_config()
        self.servers = self.loaded.config.mcp_servers

    def redactor(self) -> Redactor:
        return Redactor([*secrets_in(self.loaded.raw), *secret_values(self.env)])

    def get_server(self, name: str) -> McpServer:
        if name not in self.servers:
            near = did_you_mean(name, self.servers)
            hint = near or "List the servers: hermes mcp list"
            raise NotFound(f"Unknown MCP server: {name!r}.", hint=hint)
        return self.servers[name]

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
    rows = [_server_row(action, name, given) for name, given in sorted(action.servers.items())]
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


def _server_row(action: McpAction, name: str, given: McpServer) -> ServerRow:
    try:
        server = server_config(name, given, action.checks, action.servers)
    except ConfigError as error:
        return ServerRow(name=name, state="wrong", trouble=str(error))
    off = not given.enabled or name in action.loaded.config.agent.disabled_toolsets
    where = action.redactor().redact(_configured_command(action, name) or server.address)
    return ServerRow(name=name, state="off" if off else "on", where=one_line(where, 200))


def _configured_command(action: McpAction, name: str) -> str:
    """The command from the file: variables unexpanded and secrets masked."""
    given = load_config(action.home, {}).config.mcp_servers.get(name, McpServer())
    shown: list[str] = []
    is_secret = False
    for word in (given.command, *given.args):
        flag, sign, _ = word.partition("=")
        if is_secret or (sign and is_secret_name(flag.lstrip("-"))):
            shown.append(MASK if is_secret else f"{flag}={MASK}")
        else:
            shown.append(word)
        is_secret = (
            not is_secret and not sign and word.startswith("-") and is_secret_name(word.lstrip("-"))
        )
    return " ".join(shown)


def _add(action: McpAction, args: Namespace) -> int:
    if args.name in action.servers and not args.force:
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
    given = {name: value for name, value in fields.items() if value}
    _check(action, args.name, given)
    text = msgspec.json.encode(given).decode()
    for warning in set_setting(action.home, action.env, _path(args.name), text).warnings:
        action.hint(f"warning: {single_line(str(warning))}")
    action.context.print(f"Added: {args.name}")
    action.hint(f"Test it: hermes mcp test {args.name}")
    _print_reload_hint(action)
    return 0


def _names_relative_file(command: str, words: Iterable[str]) -> bool:
    """Whether a word is a path relative to the current folder, which must then be stored."""
    named = [*([command] if "/" in command else []), *words]
    return any(not one.startswith(("/", "~", "-")) and Path(one).exists() for one in named if one)


def _check(action: McpAction, name: str, given: dict[str, object]) -> None:
    """Validate the server; variables may still be unset."""
    unset: dict[str, str] = {}
    now = {key: value for key, value in given.items() if key not in {"headers", "env"}}
    if str(now.get("url", "")).startswith("${"):
        now["url"] = "http://later"
    now = expand_references(
        now, action.env, lambda _, variable: unset.update({variable: "later"}), (name,)
    )
    now = expand_references(now, unset, lambda _, variable: None)
    try:
        names = [*action.servers, name]
        server_config(name, msgspec.convert(now, McpServer), action.checks, names)
    except ConfigError as error:
        raise UsageError(str(error), hint="See: hermes mcp add --help") from error


def _pairs(given: Iterable[str], flag: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    if wrong := [name for name, sign, _ in pairs if not sign or not name.strip()]:
        raise UsageError(f"{flag} takes NAME=VALUE, not {wrong[0]!r}.")
    return {name.strip(): value for name, _, value in pairs}


def _remove(action: McpAction, name: str) -> int:
    action.get_server(name)
    unset_setting(action.home, action.env, _path(name))
    action.context.print(f"Removed: {single_line(name)}")
    _print_reload_hint(action)
    return 0


def _path(name: str) -> str:
    return format_path(("mcp_servers", name))


def _print_reload_hint(action: McpAction) -> None:
    if running_gateway(action.home) is not None:
        action.hint("To apply this: /reload-mcp in a chat, or restart the gateway.")


def _test(action: McpAction, name: str, *, as_json: bool) -> int:
    server = server_config(name, action.get_server(name), action.checks)
    # Errors are printed below; keep the log off the screen.
    for logger in LOGGERS:
        logging.getLogger(logger).addHandler(logging.NullHandler())
    terminal = action.loaded.config.terminal

    async def connect() -> ConnectionTest:
        with Spawner() as spawner:
            parts = SandboxDeps(action.home, action.env, terminal, spawner, SystemClock())
            return await test_connection(
                server,
                Sandboxes(parts).local,
                action.redactor(),
                action.home,
                open_blobs(action.home),
            )

    result = anyio.run(connect)
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
