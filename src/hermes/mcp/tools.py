"""Offer an MCP server's tools with approvals and limits, and convert its answers."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.client import Client
from msgspec import Raw

from hermes.config.values import as_list, as_mapping
from hermes.kit.files import MAX_IMAGE_BYTES, image_type
from hermes.kit.tasks import background_tasks
from hermes.kit.terminal_text import escape_controls, show_invisible_line
from hermes.kit.text import head_and_tail, one_line
from hermes.mcp.connection import CallTimedOut, ConnectionLost, McpConnection
from hermes.mcp.server_config import ServerConfig, StdioEndpoint
from hermes.mcp.tool_list import describe_tool
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.store import Blobs
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.messages import Media, Text
from hermes.schema.tools import Effect, ToolSpec

MAX_TEXT = 100_000
"""Characters of all parts of one answer."""
MAX_SCANNED = 4 * MAX_TEXT
MAX_IMAGES = 8
MAX_COMPARED = 1_000
"""Maximum values of structured content to look up in the text."""
NO_TEXT = "(The server answered without text.)"


class ResultReader:
    """`redact` removes our own secrets from answers."""

    def __init__(self, blobs: Blobs, redact: Callable[[str], str]) -> None:
        self._blobs = blobs
        self._redact = redact

    async def tool_output(self, result: types.CallToolResult) -> ToolOutput:
        texts = [*self._texts(result.content)]
        if _adds_content(result.structured_content, texts):
            texts.append(msgspec.json.encode(result.structured_content).decode())
        return await self._output(texts, _images(result.content), failed=bool(result.is_error))

    async def content_output(self, contents: Sequence[types.ContentBlock]) -> ToolOutput:
        return await self._output([*self._texts(contents)], _images(contents))

    async def _output(
        self, texts: Sequence[str], images: Sequence[str], *, failed: bool = False
    ) -> ToolOutput:
        shown: list[Media] = []
        notes: list[str] = []
        for data in images:
            media = await self._image(data) if len(shown) < MAX_IMAGES else None
            if media is None:
                notes.append("[an image that cannot be shown]")
            else:
                shown.append(media)
        text = "\n".join(filter(None, [*texts, *notes]))
        # Scanning all of a very long text for secrets would take too long.
        text = self._redact(escape_controls(head_and_tail(text, MAX_SCANNED)))
        text = head_and_tail(text, MAX_TEXT) or ("" if shown else NO_TEXT)
        parts = (*([Text(text)] if text else []), *shown)
        return ToolOutput(parts, shown=one_line(text, 200), failed=failed, foreign=True)

    async def _image(self, data: str) -> Media | None:
        if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
            return None
        try:
            image = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return None
        kind = image_type(image)
        return await self._blobs.put(image, kind) if kind else None

    def _texts(self, content: Sequence[types.ContentBlock]) -> Iterator[str]:
        for block in content:
            match block:
                case types.TextContent(text=text):
                    yield text
                case types.ImageContent():
                    pass
                case types.AudioContent(mime_type=kind, data=data):
                    yield f"[audio, {kind}, {len(data) * 3 // 4:,} bytes: not supported]"
                case types.ResourceLink(uri=uri, name=name):
                    yield f"[resource {name}: {uri}]"
                case types.EmbeddedResource(resource=resource):
                    yield _resource_text(resource)


def _resource_text(resource: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(resource, types.TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    if _is_image(resource):
        return f"[resource {resource.uri}]"
    size = len(resource.blob) * 3 // 4
    return f"[resource {resource.uri}: {size:,} bytes of {resource.mime_type or 'unknown type'}]"


def _is_image(resource: types.BlobResourceContents) -> bool:
    return (resource.mime_type or "").startswith("image/")


def _images(content: Sequence[types.ContentBlock]) -> list[str]:
    found: list[str] = []
    for block in content:
        match block:
            case types.ImageContent(data=data):
                found.append(data)
            case types.EmbeddedResource(resource=types.BlobResourceContents() as blob) if _is_image(
                blob
            ):
                found.append(blob.blob)
            case _:
                pass
    return found


def _adds_content(structured: object, texts: Sequence[str]) -> bool:
    """Whether the structured content is new: many servers repeat it as text."""
    if structured is None:
        return False
    left = MAX_SCANNED
    for text in texts:
        left -= len(text)
        if left < 0:
            break
        try:
            same: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        if same in (structured, {"result": same}) or {"result": same} == structured:
            return False
    shown = "\n".join(texts)[:MAX_SCANNED]
    values = islice(_values(structured), MAX_COMPARED)
    return not shown or not all(_is_shown(value, shown) for value in values)


def _values(structured: object) -> Iterator[object]:
    """The texts and numbers of a value, at any depth."""
    pending = [structured]
    while pending:
        value = pending.pop()
        if (fields := as_mapping(value)) is not None:
            pending += fields.values()
        elif (items := as_list(value)) is not None:
            pending += items
        else:
            yield value


def _is_shown(value: object, text: str) -> bool:
    """Whether the text contains the value, in any layout."""
    if value is None or isinstance(value, bool):
        return True
    words = f"{value:g}" if isinstance(value, float) else str(value)
    return words in text or msgspec.json.encode(words)[1:-1].decode() in text


ServerCall = Callable[[Client, dict[str, Any], ToolContext], Awaitable[ToolOutput]]
ServerReader = Callable[[ResultReader, Client, dict[str, Any], ToolContext], Awaitable[ToolOutput]]
OUTCOME_UNKNOWN = "It is not known whether it took effect: check before repeating it."
MAX_LISTED = 200
MAX_PROGRESS = 300
MAX_PROGRESS_TEXT = 300
PROGRESS_INTERVAL = 0.5


def server_tools(connection: McpConnection, results: ResultReader) -> list[Tool]:
    """Return the server's current tools, and readers for its resources and prompts."""
    tools = [
        McpTool(connection, spec, partial(_call_tool, results, name), seal)
        for name, (seal, spec) in connection.tools.items()
    ]
    readers = [
        McpTool(connection, spec, partial(read, results))
        for spec, read in _reader_tools(connection)
    ]
    return [*tools, *readers]


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
        """Build the request; reads never need approval, but the policy may deny them."""
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


async def _call_tool(
    results: ResultReader, name: str, client: Client, arguments: dict[str, Any], ctx: ToolContext
) -> ToolOutput:
    progress = _ProgressReporter(ctx)
    async with background_tasks() as group:
        group.start_soon(progress.report_periodically)
        result = await client.call_tool(name, arguments, progress_callback=progress.on_progress)
    await progress.report_latest()
    return await results.tool_output(result)


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


def _reader_tools(connection: McpConnection) -> Iterator[tuple[ToolSpec, ServerReader]]:
    server, offered = connection.server, connection.capabilities
    if offered.resources is not None and server.resources:
        text = "List the resources of this server."
        yield _reader_spec(server, "list_resources", text), _list_resources
        text = "Read one of its resources."
        yield _reader_spec(server, "read_resource", text, uri="string"), _read_resource
    if offered.prompts is not None and server.prompts:
        text = "List the prompts of this server."
        yield _reader_spec(server, "list_prompts", text), _list_prompts
        text = "Get one of its prompts, as text to consider."
        spec = _reader_spec(server, "get_prompt", text, name="string", arguments="object")
        yield spec, _get_prompt


def _reader_spec(server: ServerConfig, tool: str, text: str, **parameters: str) -> ToolSpec:
    return ToolSpec(
        name=server.tool_name(tool),
        description=describe_tool(server, tool, text),
        schema={
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in parameters.items()},
            "required": [name for name, kind in parameters.items() if kind == "string"],
        },
        effect=Effect.READ,
        timeout=server.max_call_seconds,
        toolset=server.toolset,
        foreign=True,
        alone=not server.parallel,
    )


async def _list_resources(
    results: ResultReader, client: Client, arguments: dict[str, Any], ctx: ToolContext
) -> ToolOutput:
    found = (await client.list_resources()).resources[:MAX_LISTED]
    lines = (
        f"{resource.uri}  {resource.name}  {resource.description or ''}".rstrip()
        for resource in found
    )
    return await results.content_output(_text_blocks("\n".join(lines) or "None."))


async def _read_resource(
    results: ResultReader, client: Client, arguments: dict[str, Any], ctx: ToolContext
) -> ToolOutput:
    found = await client.read_resource(_required_text(arguments, "uri"))
    blocks = [types.EmbeddedResource(resource=content) for content in found.contents]
    return await results.content_output(blocks)


async def _list_prompts(
    results: ResultReader, client: Client, arguments: dict[str, Any], ctx: ToolContext
) -> ToolOutput:
    found = (await client.list_prompts()).prompts[:MAX_LISTED]
    lines = (f"{prompt.name}  {prompt.description or ''}".rstrip() for prompt in found)
    return await results.content_output(_text_blocks("\n".join(lines) or "None."))


async def _get_prompt(
    results: ResultReader, client: Client, arguments: dict[str, Any], ctx: ToolContext
) -> ToolOutput:
    values: dict[str, object] = arguments.get("arguments") or {}
    texts = {key: str(value) for key, value in values.items()}
    found = await client.get_prompt(_required_text(arguments, "name"), texts)
    return await results.content_output([message.content for message in found.messages])


def _required_text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"The parameter `{name}` (text) is missing.")
    return value


def _text_blocks(text: str) -> list[types.ContentBlock]:
    return [types.TextContent(type="text", text=text)]
