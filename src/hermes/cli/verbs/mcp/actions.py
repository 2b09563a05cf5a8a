"""What `hermes mcp` does: list, add, remove and try out the servers of the settings."""

import logging
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from hermes.app.mcp_servers import ConnectionTest, test_connection
from hermes.app.mcp_settings import ServerFolders, server_config
from hermes.app.sandboxes import SandboxDeps, Sandboxes
from hermes.app.service.lock import running_gateway
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.cli.profile_hints import with_profile_flag
from hermes.config.dotenv import profile_env
from hermes.config.editor import set_setting, unset_setting
from hermes.config.env_overrides import expand_references
from hermes.config.key_paths import format_path
from hermes.config.loader import LoadedConfig, load_config
from hermes.config.masking import secrets_in
from hermes.config.sections.execution import McpServer
from hermes.config.variables import is_secret_name, secret_values
from hermes.kit.clock import SystemClock
from hermes.kit.redact import MASK, Redactor
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, one_line, plural
from hermes.logs.files import LOGGERS
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ConfigError, NotFound, UsageError
from hermes.schema.tools import Effect


class ServerRow(Struct, frozen=True, kw_only=True):
    """One server as programs see it."""

    name: str
    state: str
    where: str = ""
    trouble: str = ""


class McpAction:
    def __init__(self, context: CliContext) -> None:
        self.context = context
        self.home = context.home()
        self.env = profile_env(self.home.dotenv, context.env)
        self.ground = ServerFolders(self.env, self.home.path, str(Path.cwd()))
        self.loaded: LoadedConfig = load_config(self.home, self.env)
        self.servers = self.loaded.config.mcp_servers

    def redactor(self) -> Redactor:
        return Redactor([*secrets_in(self.loaded.raw), *secret_values(self.env)])

    def known(self, name: str) -> McpServer:
        if name not in self.servers:
            near = did_you_mean(name, self.servers)
            raise NotFound(
                f"There is no MCP server {name!r}.", hint=near or "`hermes mcp list` shows them."
            )
        return self.servers[name]

    def line(self, text: str) -> None:
        self.context.stdout.write(f"{text}\n")

    def hint(self, text: str) -> None:
        self.context.stderr.write(with_profile_flag(f"{text}\n", self.context.profile))


def perform(args: Namespace, context: CliContext) -> int:
    desk = McpAction(context)
    match args.action:
        case "list":
            return _list(desk, as_json=args.json)
        case "add":
            return _add(desk, args)
        case "remove":
            return _remove(desk, args.name)
        case _:
            return _test(desk, args.name, as_json=args.json)


def _list(desk: McpAction, *, as_json: bool) -> int:
    rows = [_server_row(desk, name, given) for name, given in sorted(desk.servers.items())]
    if as_json:
        desk.line(msgspec.json.encode(rows).decode())
        return 0
    if not rows:
        desk.line("There are no MCP servers.")
        desk.hint("Add one: hermes mcp add NAME --command PROGRAM --args …, or --url URL")
        return 0
    table = [("SERVER", "STATE", "WHERE")]
    table += [
        (single_line(one.name), one.state, single_line(one.trouble or one.where)) for one in rows
    ]
    Printer(desk.context).table(table)
    return 0


def _server_row(desk: McpAction, name: str, given: McpServer) -> ServerRow:
    try:
        server = server_config(name, given, desk.ground, desk.servers)
    except ConfigError as error:
        return ServerRow(name=name, state="wrong", trouble=str(error))
    off = not given.enabled or name in desk.loaded.config.agent.disabled_toolsets
    where = one_line(desk.redactor().redact(_configured_command(desk, name) or server.where), 200)
    return ServerRow(name=name, state="off" if off else "on", where=where)


def _configured_command(desk: McpAction, name: str) -> str:
    """Its command as the file has it: variables by their names, and secrets not at all."""
    given = load_config(desk.home, {}).config.mcp_servers.get(name, McpServer())
    shown: list[str] = []
    hides = False
    for word in (given.command, *given.args):
        flag, sign, _ = word.partition("=")
        if hides or (sign and is_secret_name(flag.lstrip("-"))):
            shown.append(MASK if hides else f"{flag}={MASK}")
        else:
            shown.append(word)
        hides = not hides and not sign and word.startswith("-") and is_secret_name(word.lstrip("-"))
    return " ".join(shown)


def _add(desk: McpAction, args: Namespace) -> int:
    if args.name in desk.servers and not args.force:
        raise UsageError(
            f"There is an MCP server {args.name!r} already.", hint="Replace it with --force."
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
    _check(desk, args.name, given)
    text = msgspec.json.encode(given).decode()
    for warning in set_setting(desk.home, desk.env, _path(args.name), text).warnings:
        desk.hint(f"warning: {single_line(str(warning))}")
    desk.line(f"Added: {args.name}")
    desk.hint(f"Try it: hermes mcp test {args.name}")
    _print_reload_hint(desk)
    return 0


def _names_relative_file(command: str, words: Iterable[str]) -> bool:
    """Whether it names a file by where we stand, while it may be started from anywhere."""
    named = [*([command] if "/" in command else []), *words]
    return any(not one.startswith(("/", "~", "-")) and Path(one).exists() for one in named if one)


def _check(desk: McpAction, name: str, given: dict[str, object]) -> None:
    """A variable that is not set yet may be set later; everything else must be right."""
    unset: dict[str, str] = {}
    now = {key: value for key, value in given.items() if key not in {"headers", "env"}}
    if str(now.get("url", "")).startswith("${"):
        now["url"] = "http://later"
    now = expand_references(
        now, desk.env, lambda _, variable: unset.update({variable: "later"}), (name,)
    )
    now = expand_references(now, unset, lambda _, variable: None)
    try:
        among = [*desk.servers, name]
        server_config(name, msgspec.convert(now, McpServer), desk.ground, among)
    except ConfigError as error:
        raise UsageError(str(error), hint="See: hermes mcp add --help") from error


def _pairs(given: Iterable[str], flag: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if wrong := [one for one, sign, _ in pairs if not sign or not one.strip()]:
        raise UsageError(f"{flag} takes NAME=VALUE, not {wrong[0]!r}.")
    return {name.strip(): value for name, _, value in pairs}


def _remove(desk: McpAction, name: str) -> int:
    desk.known(name)
    unset_setting(desk.home, desk.env, _path(name))
    desk.line(f"Removed: {single_line(name)}")
    _print_reload_hint(desk)
    return 0


def _path(name: str) -> str:
    return format_path(("mcp_servers", name))


def _print_reload_hint(desk: McpAction) -> None:
    if running_gateway(desk.home) is not None:
        desk.hint("A chat takes it up with /reload-mcp, the gateway also with a restart.")


def _test(desk: McpAction, name: str, *, as_json: bool) -> int:
    server = server_config(name, desk.known(name), desk.ground)
    # What went wrong is told below, once.
    for one in LOGGERS:
        logging.getLogger(one).addHandler(logging.NullHandler())
    terminal = desk.loaded.config.terminal

    async def trying() -> ConnectionTest:
        with Spawner() as door:
            parts = SandboxDeps(desk.home, desk.env, terminal, door, SystemClock())
            return await test_connection(server, Sandboxes(parts).near, desk.redactor(), desk.home)

    trial = anyio.run(trying)
    if as_json:
        desk.line(msgspec.json.encode(trial).decode())
    elif trial.trouble:
        desk.context.stderr.write(f"{single_line(name)}: {single_line(trial.trouble)}\n")
    else:
        _print(desk, name, trial)
    return int(bool(trial.trouble))


def _print(desk: McpAction, name: str, trial: ConnectionTest) -> None:
    desk.line(
        f"{single_line(name)}: {single_line(trial.version)}, {plural(len(trial.tools), 'tool')}"
    )
    table = [
        (one.name, "reads" if one.effect is Effect.READ else "asks", one_line(one.description, 80))
        for one in trial.tools
    ]
    if table:
        Printer(desk.context).table([("TOOL", "", "WHAT IT DOES"), *table])
