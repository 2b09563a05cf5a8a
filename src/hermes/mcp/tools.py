"""Offer the tools of an MCP server with approvals, limits and foreign provenance."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.client import Client
from msgspec import Raw

from hermes.kit.tasks import background_tasks
from hermes.kit.terminal_text import show_invisible_line
from hermes.mcp.connection import CallTimedOut, ConnectionLost, McpConnection
from hermes.mcp.results import ResultReader
from hermes.mcp.server_config import ServerConfig, StdioEndpoint
from hermes.mcp.tool_list import describe_tool
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect, ToolSpec

ServerCall = Callable[[Client, dict[str, Any], ToolContext], Awaitable[ToolOutput]]
OUTCOME_UNKNOWN = "It is not known whether it took effect: check before repeating it."
MAX_LISTED = 200
MAX_PROGRESS = 300
MAX_PROGRESS_TEXT = 300
PROGRESS_INTERVAL = 0.5


def server_tools(connection: McpConnection, results: ResultReader) -> list[Tool]:
    """Return the server's current tools, and readers for its resources and prompts."""
    found: list[Tool] = []
    for name, (seal, spec) in connection.tools.items():
        found.append(McpTool(connection, spec, _call_tool(name, results), seal))
    found += [McpTool(connection, spec, work) for spec, work in _reader_tools(connection, results)]
    return found


class McpTool:
    """A tool without a `seal` is one of our own readers."""

    def __init__(
        self, connection: McpConnection, spec: ToolSpec, work: ServerCall, seal: str = ""
    ) -> None:
        self.spec = spec
        self._connection = connection
        self._work = work
        self._seal = seal

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = msgspec.json.decode(args, type=dict[str, Any])
        decision = await ctx.request_approval(self._approval_request(args))
        if not decision.allowed:
            raise ToolError(decision.why)
        try:
            return await self._call(arguments, ctx)
        except (ConnectionLost, CallTimedOut) as error:
            if self.spec.effect is not Effect.READ:
                raise ToolError(f"{error} {OUTCOME_UNKNOWN}") from error
            if isinstance(error, CallTimedOut):
                raise
            return await self._call(arguments, ctx)

    async def _call(self, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        return await self._connection.call(
            lambda client: self._work(client, arguments, ctx), ctx.ask_person
        )

    def _approval_request(self, args: Raw) -> ApprovalRequest:
        """Reads are never asked about, but the policy may deny them."""
        server = self._connection.server
        isolated = not isinstance(server.endpoint, StdioEndpoint) or server.endpoint.sandboxed
        acting = Isolation.NETWORK if isolated else Isolation.BEYOND
        return ApprovalRequest(
            tool=self.spec.name,
            action=f"{self.spec.name} {bytes(args).decode('utf-8', 'replace')}",
            reaching=Isolation.INSIDE if self.spec.effect is Effect.READ else acting,
            kind=f"every call of this tool of the MCP server {server.name}",
            seal=self._seal,
        )


def _call_tool(name: str, reading: ResultReader) -> ServerCall:
    async def work(client: Client, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        progress = _ProgressReporter(ctx)
        async with background_tasks() as group:
            group.start_soon(progress.report_periodically)
            result = await client.call_tool(name, arguments, progress_callback=progress.on_progress)
        await progress.report_latest()
        return await reading.tool_output(result)

    return work


class _ProgressReporter:
    """Passes on the latest progress at intervals, however much a server sends."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._progress_event = anyio.Event()
        self._newest: tuple[float, float | None, str] | None = None
        self._left = MAX_PROGRESS

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = progress, total, (message or "")[:MAX_PROGRESS_TEXT]
        self._progress_event.set()

    async def report_periodically(self) -> None:
        while True:
            await self._progress_event.wait()
            self._progress_event = anyio.Event()
            await self.report_latest()
            await anyio.sleep(PROGRESS_INTERVAL)

    async def report_latest(self) -> None:
        """Report the latest progress if it was not reported yet."""
        if self._newest is None or not self._left:
            return
        (progress, total, message), self._newest = self._newest, None
        self._left -= 1
        total_text = f"/{total:g}" if total else ""
        await self._ctx.progress(
            f"{progress:g}{total_text} {show_invisible_line(message, MAX_PROGRESS_TEXT)}\n"
        )


def _reader_tools(
    link: McpConnection, reading: ResultReader
) -> Iterator[tuple[ToolSpec, ServerCall]]:
    server, has = link.server, link.capabilities
    if has.resources is not None and server.resources:
        yield (
            _reader_spec(server, "list_resources", "List the resources of this server."),
            _list_resources(reading),
        )
        text = "Read one of its resources."
        yield (
            _reader_spec(server, "read_resource", text, {"uri": "string"}),
            _read_resource(reading),
        )
    if has.prompts is not None and server.prompts:
        yield (
            _reader_spec(server, "list_prompts", "List the prompts of this server."),
            _list_prompts(reading),
        )
        text = "Get one of its prompts, as text to consider."
        takes = {"name": "string", "arguments": "object"}
        yield _reader_spec(server, "get_prompt", text, takes), _get_prompt(reading)


def _reader_spec(
    server: ServerConfig, name: str, text: str, parameters: Mapping[str, str] | None = None
) -> ToolSpec:
    parameters = parameters or {}
    required = [name_ for name_, kind in parameters.items() if kind == "string"]
    return ToolSpec(
        name=server.tool_name(name),
        description=describe_tool(server, name, text),
        schema={
            "type": "object",
            "properties": {name_: {"type": kind} for name_, kind in parameters.items()},
            "required": required,
        },
        effect=Effect.READ,
        timeout=server.max_call_seconds,
        toolset=server.name,
        foreign=True,
        alone=not server.parallel,
    )


def _list_resources(reading: ResultReader) -> ServerCall:
    async def work(client: Client, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        found = (await client.list_resources()).resources[:MAX_LISTED]
        lines = [
            f"{resource.uri}  {resource.name}  {resource.description or ''}".rstrip()
            for resource in found
        ]
        return await reading.content_output(_text_blocks("\n".join(lines) or "None."))

    return work


def _read_resource(reading: ResultReader) -> ServerCall:
    async def work(client: Client, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        found = await client.read_resource(_required_text(arguments, "uri"))
        blocks = [types.EmbeddedResource(resource=content) for content in found.contents]
        return await reading.content_output(blocks)

    return work


def _list_prompts(reading: ResultReader) -> ServerCall:
    async def work(client: Client, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        found = (await client.list_prompts()).prompts[:MAX_LISTED]
        lines = [f"{prompt.name}  {prompt.description or ''}".rstrip() for prompt in found]
        return await reading.content_output(_text_blocks("\n".join(lines) or "None."))

    return work


def _get_prompt(reading: ResultReader) -> ServerCall:
    async def work(client: Client, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        values: dict[str, object] = arguments.get("arguments") or {}
        texts = {key: str(value) for key, value in values.items()}
        found = await client.get_prompt(_required_text(arguments, "name"), texts)
        return await reading.content_output([message.content for message in found.messages])

    return work


def _required_text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"The parameter `{name}` (text) is missing.")
    return value


def _text_blocks(text: str) -> list[types.ContentBlock]:
    return [types.TextContent(type="text", text=text)]
