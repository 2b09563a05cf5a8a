"""The `send_message` tool: send a message or files to a chat."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, Struct, UnsetType

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.ports.message_sender import MessageSender, SendTarget
from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators, required
from hermes.tools.files.sent_files import SentFileReader, SentFiles
from hermes.tools.tool_io import Arguments, encode_result, require_approval

MAX_TEXT = 20_000
_SHOWN = "the dashboard offers the files for download"
_NO_FILES = "your answer reaches the person anyway; only files can be sent here"


class SendArgs(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    message: str = ""
    files: tuple[str, ...] = ()


class TargetStatus(Struct, frozen=True, kw_only=True):
    target: str
    status: str
    error: str | UnsetType = UNSET
    note: str | UnsetType = UNSET


class SendMessageResult(Struct, frozen=True):
    """`files` are the real paths of files that the dashboard offers for download."""

    success: bool
    results: list[TargetStatus]
    files: list[str] | UnsetType = UNSET


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
            targets = self._sender.resolve(ctx.scope, arguments.target)
        except UsageError as error:
            raise ToolError(f"send_message: {error}", hint=error.hint) from error
        on_page = any(target.is_page for target in targets)
        shown = await self._files.check(ctx, arguments.files) if on_page else []
        if any(target.address is not None for target in targets):
            files = await self._files.read(ctx, arguments.files)
            await self._require_approval(arguments, targets, ctx, files)
            await self._sender.send(ctx.scope, targets, text, attachments=files.attachments)
        statuses = [_status(target, arguments) for target in targets]
        sent = [one.target for one in statuses if one.status != "failed"]
        return ToolOutput.text(
            encode_result(SendMessageResult(bool(sent), statuses, shown or UNSET)),
            shown=", ".join(sent) or "nowhere",
            failed=not sent,
        )

    async def _require_approval(
        self,
        arguments: SendArgs,
        targets: Sequence[SendTarget],
        ctx: ToolContext,
        files: SentFiles,
    ) -> None:
        """Ask first, unless only the owner's chats and no untrusted content are involved."""
        reached = [target for target in targets if target.address is not None]
        others = [target.name for target in reached if not target.trusted]
        foreign = ctx.foreign or files.foreign
        if not reached or not (others or foreign):
            return
        content = "\n".join(filter(None, [arguments.message, *files.names]))
        request = ApprovalRequest(
            tool=self.name,
            action=f"to {', '.join(others) or arguments.target}:\n{content}",
            reaching=Isolation.BEYOND,
            foreign=foreign,
        )
        await require_approval(ctx, request)


def _status(target: SendTarget, arguments: SendArgs) -> TargetStatus:
    if target.address is not None:
        return TargetStatus(target=target.name, status="queued")
    if target.is_page and arguments.files:
        return TargetStatus(target=target.name, status="shown", note=_SHOWN)
    reason = _NO_FILES if target.is_page else target.reason
    return TargetStatus(target=target.name, status="failed", error=reason)


def build_send_message(deps: ToolCollaborators) -> SendMessage:
    files = SentFileReader(
        paths=deps.paths,
        blobs=deps.blobs,
        threads=deps.threads,
        provenance=deps.provenance,
    )
    return SendMessage(required(deps.message_sender), files)
