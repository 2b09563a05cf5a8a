"""The `send_message` tool: words for a chat that is not where the answer goes."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.message_sender import MessageSender, TargetResult
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.tools import Effect, ToolSpec
from hermes.tools.tool_io import Arguments, encode_result, load_description

MAX_TEXT = 20_000


class SendArgs(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    message: str


class TargetStatus(Struct, frozen=True, kw_only=True):
    target: str
    status: str
    error: str | UnsetType = UNSET


class SendMessageResult(Struct, frozen=True):
    success: bool
    results: list[TargetStatus]


class SendMessage:
    name = "send_message"

    def __init__(self, poster: MessageSender) -> None:
        self._poster = poster
        self._arguments = Arguments(self.name, SendArgs)
        self.spec = ToolSpec(
            self.name,
            load_description(__file__),
            self._arguments.schema,
            Effect.OUTSIDE,
            timeout=60.0,
            toolset="messaging",
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
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
        lines = [_status_of(one) for one in posted]
        done = any(one.key for one in posted)
        shown = ", ".join(one.place for one in posted if one.key) or "nowhere"
        return ToolOutput.text(
            encode_result(SendMessageResult(done, lines)), shown=shown, failed=not done
        )

    async def _may(self, asked: SendArgs, places: Sequence[TargetResult], ctx: ToolContext) -> None:
        """The owner's own places need no leave, unless strangers' words may have led there."""
        others = [one.place for one in places if not one.near]
        if not others and not ctx.foreign:
            return
        wish = ApprovalRequest(
            tool=self.name,
            action=f"to {', '.join(others) or asked.target}:\n{asked.message}",
            reaching=Isolation.BEYOND,
            foreign=ctx.foreign,
        )
        decision = await ctx.ask(wish)
        if not decision.allowed:
            raise ToolError(f"send_message: {decision.why}")


def _status_of(posted: TargetResult) -> TargetStatus:
    if posted.key:
        return TargetStatus(target=posted.place, status="queued")
    return TargetStatus(target=posted.place, status="failed", error=posted.why)
