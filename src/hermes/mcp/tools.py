"""Tools of a server, behind the same doors as our own: asked for, bounded, of foreign origin."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.client import Client
from msgspec import Raw

from hermes.kit.plain import visible_line
from hermes.kit.tasks import beside
from hermes.mcp.link import Late, Link, Lost
from hermes.mcp.listing import described
from hermes.mcp.results import Reading
from hermes.mcp.server import Program, Server
from hermes.ports.counsel import Reaching, Wish
from hermes.ports.tool import Output, Tool, ToolContext
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect, ToolSpec

Work = Callable[[Client, dict[str, Any], ToolContext], Awaitable[Output]]
UNKNOWN = "Whether it was done is not known: look before doing it again."
MOST_LISTED = 200
MOST_NEWS = 300
LONGEST_NEWS = 300
BETWEEN_NEWS = 0.5


def tools_of(link: Link, reading: Reading) -> list[Tool]:
    """Those that the server has now, and ways to what else it offers."""
    found: list[Tool] = []
    for name, (seal, spec) in link.tools.items():
        found.append(ServerTool(link, spec, _calling(name, reading), seal))
    found += [ServerTool(link, spec, work) for spec, work in _besides(link, reading)]
    return found


class ServerTool:
    """Without a `seal` it is a reader of our own making."""

    def __init__(self, link: Link, spec: ToolSpec, work: Work, seal: str = "") -> None:
        self.spec = spec
        self._link = link
        self._work = work
        self._seal = seal

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        given = msgspec.json.decode(args, type=dict[str, Any])
        ruling = await ctx.ask(self._wish(args))
        if not ruling.allowed:
            raise ToolError(ruling.why)
        try:
            return await self._once(given, ctx)
        except (Lost, Late) as error:
            if self.spec.effect is not Effect.READ:
                raise ToolError(f"{error} {UNKNOWN}") from error
            if isinstance(error, Late):
                raise
            return await self._once(given, ctx)

    async def _once(self, given: dict[str, Any], ctx: ToolContext) -> Output:
        return await self._link.call(lambda client: self._work(client, given, ctx), ctx.inquire)

    def _wish(self, args: Raw) -> Wish:
        """Nobody is asked about what only reads, but what the settings forbid holds for it too."""
        server = self._link.server
        walled = not isinstance(server.way, Program) or server.way.walled
        acting = Reaching.NETWORK if walled else Reaching.BEYOND
        return Wish(
            tool=self.spec.name,
            action=f"{self.spec.name} {bytes(args).decode('utf-8', 'replace')}",
            reaching=Reaching.INSIDE if self.spec.effect is Effect.READ else acting,
            kind=f"every call of this tool of the MCP server {server.name}",
            seal=self._seal,
        )


def _calling(name: str, reading: Reading) -> Work:
    async def work(client: Client, given: dict[str, Any], ctx: ToolContext) -> Output:
        news = _News(ctx)
        async with beside() as group:
            group.start_soon(news.tell)
            result = await client.call_tool(name, given, progress_callback=news.heard)
        await news.last()
        return await reading.called(result)

    return work


class _News:
    """How far a call is: the newest word now and then, however many a server says."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._come = anyio.Event()
        self._newest: tuple[float, float | None, str] | None = None
        self._left = MOST_NEWS

    async def heard(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = progress, total, (message or "")[:LONGEST_NEWS]
        self._come.set()

    async def tell(self) -> None:
        while True:
            await self._come.wait()
            self._come = anyio.Event()
            await self.last()
            await anyio.sleep(BETWEEN_NEWS)

    async def last(self) -> None:
        """What is still to be told, if anything is."""
        if self._newest is None or not self._left:
            return
        (progress, total, message), self._newest = self._newest, None
        self._left -= 1
        of = f"/{total:g}" if total else ""
        await self._ctx.progress(f"{progress:g}{of} {visible_line(message, LONGEST_NEWS)}\n")


def _besides(link: Link, reading: Reading) -> Iterator[tuple[ToolSpec, Work]]:
    server, has = link.server, link.capabilities
    if has.resources is not None and server.resources:
        yield (
            _reader(server, "list_resources", "What this server has to read."),
            _resources(reading),
        )
        told = "Reads one of its resources."
        yield _reader(server, "read_resource", told, {"uri": "string"}), _resource(reading)
    if has.prompts is not None and server.prompts:
        yield _reader(server, "list_prompts", "The prompts of this server."), _prompts(reading)
        told = "One of its prompts, as text to consider."
        takes = {"name": "string", "arguments": "object"}
        yield _reader(server, "get_prompt", told, takes), _prompt(reading)


def _reader(
    server: Server, name: str, told: str, parameters: Mapping[str, str] | None = None
) -> ToolSpec:
    parameters = parameters or {}
    needed = [one for one, kind in parameters.items() if kind == "string"]
    return ToolSpec(
        name=server.named(name),
        description=described(server, name, told),
        schema={
            "type": "object",
            "properties": {one: {"type": kind} for one, kind in parameters.items()},
            "required": needed,
        },
        effect=Effect.READ,
        timeout=server.longest,
        toolset=server.name,
        foreign=True,
        alone=not server.parallel,
    )


def _resources(reading: Reading) -> Work:
    async def work(client: Client, given: dict[str, Any], ctx: ToolContext) -> Output:
        found = (await client.list_resources()).resources[:MOST_LISTED]
        lines = [f"{one.uri}  {one.name}  {one.description or ''}".rstrip() for one in found]
        return await reading.read(_text("\n".join(lines) or "None."))

    return work


def _resource(reading: Reading) -> Work:
    async def work(client: Client, given: dict[str, Any], ctx: ToolContext) -> Output:
        found = await client.read_resource(_given(given, "uri"))
        blocks = [types.EmbeddedResource(resource=one) for one in found.contents]
        return await reading.read(blocks)

    return work


def _prompts(reading: Reading) -> Work:
    async def work(client: Client, given: dict[str, Any], ctx: ToolContext) -> Output:
        found = (await client.list_prompts()).prompts[:MOST_LISTED]
        lines = [f"{one.name}  {one.description or ''}".rstrip() for one in found]
        return await reading.read(_text("\n".join(lines) or "None."))

    return work


def _prompt(reading: Reading) -> Work:
    async def work(client: Client, given: dict[str, Any], ctx: ToolContext) -> Output:
        arguments: dict[str, object] = given.get("arguments") or {}
        words = {key: str(value) for key, value in arguments.items()}
        found = await client.get_prompt(_given(given, "name"), words)
        return await reading.read([message.content for message in found.messages])

    return work


def _given(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"The parameter `{name}` (text) is missing.")
    return value


def _text(text: str) -> list[types.ContentBlock]:
    return [types.TextContent(type="text", text=text)]
