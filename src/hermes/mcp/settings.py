"""Validate the settings of MCP servers."""

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct

from hermes.config.env import Env, base_env
from hermes.config.home import user_home
from hermes.config.sections.execution import McpServer
from hermes.kit.hosts import parse_http_url
from hermes.mcp.server_config import (
    NAME_PATTERN,
    Endpoint,
    HttpEndpoint,
    ServerConfig,
    StdioEndpoint,
    duplicate_names,
)
from hermes.schema.errors import ConfigError

TRANSPORTS = ("", "stdio", "http", "streamable_http", "streamable-http", "sse")


TOOLSET_PREFIX = "mcp-"
"""Prefix of a server's toolset if its name is one of ours, such as `memory`."""


class ServerContext(Struct, frozen=True):
    """Where servers are started, and the names of our own toolsets."""

    env: Env
    home: Path  # of the profile
    workspace: str
    reserved: Collection[str] = ()

    def toolset(self, server: str) -> str:
        """The name of a server's tools in the settings."""
        return f"{TOOLSET_PREFIX}{server}" if server in self.reserved else server


def server_config(
    name: str, settings: McpServer, context: ServerContext, all_names: Iterable[str] = ()
) -> ServerConfig:
    """Raises `ConfigError` for invalid settings.

    Of two names among `all_names` that look the same to a model, the first is used.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise _invalid_server(
            name,
            "its name may have up to 32 letters, digits, dots, underscores and dashes, "
            "with no two dots or underscores in a row, and none at the end",
        )
    if first := duplicate_names(all_names).get(name):
        raise _invalid_server(name, f"its name is too similar to that of {first!r}")
    if settings.timeout <= 0 or settings.connect_timeout <= 0:
        raise _invalid_server(name, "timeout and connect_timeout must be more than 0 seconds")
    return ServerConfig(
        name=name,
        endpoint=_endpoint(name, settings, context),
        toolset_prefix=context.toolset(name).removesuffix(name),
        timeout=settings.timeout,
        connect=settings.connect_timeout,
        idle=settings.idle_timeout_seconds,
        lifetime=settings.max_lifetime_seconds,
        include=settings.tools.include,
        exclude=settings.tools.exclude,
        parallel=settings.supports_parallel_tool_calls,
        resources=settings.tools.resources,
        prompts=settings.tools.prompts,
    )


def missing_program(endpoint: StdioEndpoint) -> str:
    """The program of a server if it is not installed; empty if it is."""
    command = endpoint.argv[0]
    # A relative path starts from the server's working directory.
    program = str(Path(endpoint.cwd, command)) if "/" in command else command
    return "" if shutil.which(program, path=endpoint.env.get("PATH")) else program


def _endpoint(name: str, settings: McpServer, context: ServerContext) -> Endpoint:
    if bool(settings.command) == bool(settings.url):
        raise _invalid_server(name, "set either a command to start or a url to call")
    if settings.transport not in TRANSPORTS:
        raise _invalid_server(name, f"unknown transport {settings.transport!r}; use http or sse")
    _check_variables(name, settings)
    if settings.command:
        home = user_home(context.env)
        command, *_ = words = _expand_home((settings.command, *settings.args), home)
        if not command.strip() or any("\0" in word for word in words):
            raise _invalid_server(name, "its command cannot be run")
        return StdioEndpoint(
            argv=tuple(words),
            cwd=_server_folder(settings, context, home),
            env={**base_env(context.env), **settings.env},
            sandboxed=settings.sandbox,
        )
    if parse_http_url(settings.url) is None:
        raise _invalid_server(name, "its url must be http or https, without a password")
    if settings.auth:
        raise _invalid_server(
            name, f"auth: {settings.auth} is not supported; put a token into its headers"
        )
    if any("\n" in one or not one.isascii() for pair in settings.headers.items() for one in pair):
        raise _invalid_server(name, "its headers contain invalid characters")
    return HttpEndpoint(url=settings.url, headers=settings.headers, sse=settings.transport == "sse")


def _server_folder(settings: McpServer, context: ServerContext, home: Path) -> str:
    """Unsandboxed servers do not start in the workspace, whose files they might load as code."""
    if settings.cwd:
        return str(Path(context.workspace, *_expand_home([settings.cwd], home)))
    return context.workspace if settings.sandbox else str(context.home)


def _check_variables(name: str, settings: McpServer) -> None:
    values = (*settings.args, *settings.env.values(), *settings.headers.values())
    for text in (settings.command, settings.url, *values):
        if "${" in text:
            variable = text.partition("${")[2].partition("}")[0]
            hint = f"Set it: hermes config set {variable} VALUE"
            raise _invalid_server(name, f"the variable {variable} is not set", hint)


def _expand_home(words: Iterable[str], home: Path) -> list[str]:
    return [f"{home}{word[1:]}" if word.startswith("~/") else word for word in words]


def _invalid_server(name: str, why: str, hint: str = "Fix it: hermes config edit") -> ConfigError:
    return ConfigError(f"The MCP server {name!r} cannot be used: {why}.", hint=hint)
