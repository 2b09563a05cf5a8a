"""The `send_message` tool: words for a chat that is not where the answer goes."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.counsel import Reaching, Wish
from hermes.ports.posting import Posted, Poster
from hermes.ports.tool import Output, ToolContext
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.arguments import Arguments, description, result

MAX_TEXT = 20_000


class SendArgs(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    message: str


class Line(Struct, frozen=True, kw_only=True):
    target: str
    status: str
    error: str | UnsetType = UNSET


class SendResult(Struct, frozen=True):
    success: bool
    results: list[Line]


class SendMessage:
    name = "send_message"

    def __init__(self, poster: Poster) -> None:
        self._poster = poster
        self._arguments = Arguments(self.name, SendArgs)
        self.spec = ToolSpec(
            self.name,
            description(__file__),
            self._arguments.schema,
            Effect.OUTSIDE,
            timeout=60.0,
            toolset="messaging",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> Output:
        asked = self._arguments.decode(args)
        text = asked.message.strip()
        if not text:
            raise ToolError("send_message: `message` is empty.")
        if len(text) > MAX_TEXT:
            raise ToolError(f"send_message: `message` is longer than {MAX_TEXT:,} characters.")
        try:
            places = self._poster.places(ctx.scope, asked.target)
            await self._may(asked, places, ctx)
            posted = await self._poster.post(ctx.scope, asked.target, text)
        except UsageError as error:
            raise ToolError(f"send_message: {error}", hint=error.hint) from error
        lines = [_line(one) for one in posted]
        done = any(one.key for one in posted)
        shown = ", ".join(one.place for one in posted if one.key) or "nowhere"
        return Output.text(result(SendResult(done, lines)), shown=shown, failed=not done)

    async def _may(self, asked: SendArgs, places: Sequence[Posted], ctx: ToolContext) -> None:
        """The owner's own places need no leave, unless strangers' words may have led there."""
        others = [one.place for one in places if not one.near]
        if not others and not ctx.foreign:
            return
        wish = Wish(
            tool=self.name,
            action=f"to {', '.join(others) or asked.target}:\n{asked.message}",
            reaching=Reaching.BEYOND,
            foreign=ctx.foreign,
        )
        ruling = await ctx.ask(wish)
        if not ruling.allowed:
            raise ToolError(f"send_message: {ruling.why}")


def _line(posted: Posted) -> Line:
    if posted.key:
        return Line(target=posted.place, status="queued")
    return Line(target=posted.place, status="failed", error=posted.why)
