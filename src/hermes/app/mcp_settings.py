"""The settings of MCP servers, as connections are made from them; what is wrong is said."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from hermes.app.toolbox import NO_MCP
from hermes.config.env import Env
from hermes.config.home import user_home
from hermes.config.sections.execution import McpServer
from hermes.kit.public_urls import parse_http_url
from hermes.mcp.server_config import (
    NAME_PATTERN,
    Endpoint,
    HttpEndpoint,
    ServerConfig,
    StdioEndpoint,
    duplicate_names,
)
from hermes.sandbox.child_env import base_env
from hermes.schema.errors import ConfigError
from hermes.tools.toolsets import known_toolsets

TRANSPORTS = ("", "stdio", "http", "streamable_http", "streamable-http", "sse")


class ServerFolders(Struct, frozen=True):
    """Where servers are started: `home` is the folder of the profile."""

    env: Env
    home: Path
    workspace: str


def server_config(
    name: str, given: McpServer, ground: ServerFolders, among: Iterable[str] = ()
) -> ServerConfig:
    """Raises `ConfigError` that says what is wrong with it, and what to do.

    `among` are the names of all servers: of two that a model cannot tell apart the first counts.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise _invalid_server(
            name,
            "its name may have up to 32 letters, digits, dots, lines and dashes, "
            "with no two dots or lines in a row, and none at the end",
        )
    if first := duplicate_names(among).get(name):
        raise _invalid_server(name, f"a model could not tell its name from that of {first!r}")
    if name in {*known_toolsets(), NO_MCP}:
        raise _invalid_server(name, "that is the name of a toolset already")
    if given.timeout <= 0 or given.connect_timeout <= 0:
        raise _invalid_server(name, "timeout and connect_timeout are seconds, more than 0")
    return ServerConfig(
        name=name,
        way=_endpoint(name, given, ground),
        timeout=given.timeout,
        connect=given.connect_timeout,
        idle=given.idle_timeout_seconds,
        lifetime=given.max_lifetime_seconds,
        include=given.tools.include,
        exclude=given.tools.exclude,
        parallel=given.supports_parallel_tool_calls,
        resources=given.tools.resources,
        prompts=given.tools.prompts,
    )


def _endpoint(name: str, given: McpServer, ground: ServerFolders) -> Endpoint:
    if bool(given.command) == bool(given.url):
        raise _invalid_server(name, "it has a command to start, or a url to call: one of the two")
    if given.transport not in TRANSPORTS:
        raise _invalid_server(name, f"there is no transport {given.transport!r}, only http and sse")
    _check_variables(name, given)
    if given.command:
        home = user_home(ground.env)
        command, *_ = words = _expand_home((given.command, *given.args), home)
        if not command.strip() or any("\0" in word for word in words):
            raise _invalid_server(name, "its command cannot be run")
        variables = {**base_env(ground.env), **given.env}
        folder = _server_folder(given, ground, home)
        return StdioEndpoint(argv=tuple(words), cwd=folder, env=variables, walled=given.sandbox)
    if parse_http_url(given.url) is None:
        raise _invalid_server(
            name, "its url is no address over http or https without a password in it"
        )
    if given.auth:
        raise _invalid_server(
            name, f"auth: {given.auth} is not known here; put a token into its headers"
        )
    if any("\n" in one or not one.isascii() for pair in given.headers.items() for one in pair):
        raise _invalid_server(name, "its headers have letters that no header has")
    return HttpEndpoint(url=given.url, headers=given.headers, events=given.transport == "sse")


def _server_folder(given: McpServer, ground: ServerFolders, home: Path) -> str:
    """Without a wall only on demand where the agent writes: programs load what lies beside them."""
    if given.cwd:
        return str(Path(ground.workspace, *_expand_home([given.cwd], home)))
    return ground.workspace if given.sandbox else str(ground.home)


def _check_variables(name: str, given: McpServer) -> None:
    texts = [given.command, *given.args, given.url, *given.env.values(), *given.headers.values()]
    for text in texts:
        if "${" in text:
            variable = text.partition("${")[2].partition("}")[0]
            mend = f"Set it: hermes config set {variable} VALUE"
            raise _invalid_server(name, f"the variable {variable} is not set", mend)


def _expand_home(words: Iterable[str], home: Path) -> list[str]:
    return [f"{home}{word[1:]}" if word.startswith("~/") else word for word in words]


def _invalid_server(
    name: str, why: str, hint: str = "Correct it: hermes config edit"
) -> ConfigError:
    return ConfigError(f"The MCP server {name!r} cannot be used: {why}.", hint=hint)
