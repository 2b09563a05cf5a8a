"""The `send_message` tool: send a message or files to a chat."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.message_sender import MessageSender, TargetResult
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.files.sent_files import SentFileReader, SentFiles
from hermes.tools.tool_io import Arguments, encode_result, require_approval

MAX_TEXT = 20_000


class SendArgs(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    message: str = ""
    files: tuple[str, ...] = ()


class TargetStatus(Struct, frozen=True, kw_only=True):
    target: str
    status: str
    error: str | UnsetType = UNSET


class SendMessageResult(Struct, frozen=True):
    success: bool
    results: list[TargetStatus]


class SendMessage:
    name = "send_message"

    def __init__(self, sender: MessageSender, files: SentFileReader) -> None:
        self._sender = sender
        self._files = files
        self._arguments = Arguments(self.name, SendArgs)
        self.spec = self._arguments.spec(
            __file__, Effect.OUTSIDE, timeout=60.0, toolset="messaging"
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        text = arguments.message.strip()
        if not text and not arguments.files:
            raise ToolError("send_message: `message` is empty.")
        if len(text) > MAX_TEXT:
            raise ToolError(f"send_message: `message` is longer than {MAX_TEXT:,} characters.")
        try:
            places = self._sender.resolve(ctx.scope, arguments.target)
            files = await self._files.read(ctx, arguments.files)
            await self._require_approval(arguments, places, ctx, files)
            posted = await self._sender.send(
                ctx.scope, arguments.target, text, attachments=files.attachments
            )
        except UsageError as error:
            raise ToolError(f"send_message: {error}", hint=error.hint) from error
        statuses = [
            TargetStatus(target=result.target, status="queued")
            if result.key
            else TargetStatus(target=result.target, status="failed", error=result.reason)
            for result in posted
        ]
        done = any(result.key for result in posted)
        shown = ", ".join(result.target for result in posted if result.key) or "nowhere"
        return ToolOutput.text(
            encode_result(SendMessageResult(done, statuses)), shown=shown, failed=not done
        )

    async def _require_approval(
        self,
        arguments: SendArgs,
        places: Sequence[TargetResult],
        ctx: ToolContext,
        files: SentFiles,
    ) -> None:
        """Ask first, unless only the owner's chats and no untrusted content are involved."""
        others = [one.target for one in places if not one.trusted]
        foreign = ctx.foreign or files.foreign
        if not others and not foreign:
            return
        content = "\n".join(filter(None, [arguments.message, *files.names]))
        request = ApprovalRequest(
            tool=self.name,
            action=f"to {', '.join(others) or arguments.target}:\n{content}",
            reaching=Isolation.BEYOND,
            foreign=foreign,
        )
        await require_approval(ctx, request)


def build_send_message(given: ToolCollaborators) -> SendMessage:
    files = SentFileReader(
        paths=given.paths,
        blobs=given.blobs,
        threads=given.threads,
        provenance=given.provenance,
    )
    return SendMessage(required(given.message_sender), files)
