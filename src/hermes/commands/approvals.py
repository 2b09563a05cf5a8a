"""Slash commands that answer approval requests and manage saved approvals and trusted files."""

import re
from collections.abc import Sequence
from functools import partial

from anyio import to_thread

from hermes.approvals.service import Answerer, ApprovalService
from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.commands.services import InstructionFile
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import head_and_tail, one_line
from hermes.schema.errors import UsageError
from hermes.schema.questions import ApprovalChoice
from hermes.schema.terminal import CommandReply, TextReply

_ID_LENGTH = 8
"""Characters of an id that identify it in a list."""
_CHOICES = frozenset({"once", "session", "always"})
_MAX_SHOWN = 20_000
"""Characters shown of a trusted file."""
_QUESTION_ID = re.compile(r"(?:ask_)?[0-9A-Za-z]{6,40}")


async def _approve(context: CommandContext, args: str) -> CommandReply:
    parts = args.split()
    everything = "all" in map(str.lower, parts)
    chosen = [part.lower() for part in parts if part.lower() in _CHOICES]
    question_ids = [part for part in parts if part.lower() not in {*_CHOICES, "all"}]
    invalid = (
        len(chosen) > 1
        or len(question_ids) > 1
        or any(not _QUESTION_ID.fullmatch(question_id) for question_id in question_ids)
    )
    if invalid or (question_ids and everything):
        raise UsageError(
            "/approve takes an optional session or always, and an optional request id.",
            hint="For example: /approve session, or /approve 1A2B3C",
        )
    choice = ApprovalChoice(chosen[0]) if chosen else ApprovalChoice.ONCE
    question = "".join(question_ids) or ("" if everything else context.caller.question)
    result = await _approval_service(context).answer(
        _answerer(context), choice, question=question, everything=everything
    )
    return TextReply(result.message)


async def _deny(context: CommandContext, args: str) -> CommandReply:
    first, _, rest = args.partition(" ")
    service, answerer = _approval_service(context), _answerer(context)
    everything = first.lower() == "all"
    has_id = bool(_QUESTION_ID.fullmatch(first)) and await service.has_request(answerer, first)
    reason = rest.strip() if everything or has_id else args
    replied = "" if everything else context.caller.question
    result = await service.answer(
        answerer,
        ApprovalChoice.DENY,
        question=first if has_id else replied,
        words=reason,
        everything=everything,
    )
    return TextReply(result.message)


async def _yolo(context: CommandContext, args: str) -> CommandReply:
    service, session = _approval_service(context), context.conversation.session
    if context.in_chat and not context.conversation.started:
        raise UsageError("There is no session here yet.", hint="Send a message first.")
    word = args.lower()
    if word not in {"", "on", "off"}:
        raise UsageError("/yolo takes on, off or nothing.")
    on = word == "on" if word else not await service.yolo(session.id)
    await service.set_yolo(session.id, on=on)
    if on:
        return TextReply(
            "Approvals are off for this session. Commands that would destroy the machine are "
            "still blocked. /yolo turns approvals on again."
        )
    return TextReply("Approvals are on again for this session.")


async def _approvals(context: CommandContext, args: str) -> CommandReply:
    service = _approval_service(context)
    match args.split():
        case [] | ["list"]:
            return TextReply(await _saved_approvals(service, context.conversation.session.id))
        case ["revoke", name]:
            saved = await service.revoke(name)
            return TextReply(f"Revoked: {one_line(saved.text, 200)}")
        case _:
            raise UsageError(
                "/approvals takes list or revoke.", hint="For example: /approvals revoke 1A2B3C4D"
            )


async def _saved_approvals(service: ApprovalService, session: str) -> str:
    durations = {"": "always", session: "this session"}
    lines = [
        f"{approval.id[-_ID_LENGTH:]}  {durations.get(approval.session, 'another session')}  "
        f"{approval.tool} ({approval.reaching}): {one_line(approval.text, 120)}"
        for approval in await service.saved_approvals()
    ]
    lines += [f"settings  command_allowlist: {line}" for line in service.rules.allow]
    if not lines:
        return "There are no saved approvals."
    return "\n".join([*lines, "/approvals revoke ID revokes one."])


def _approval_service(context: CommandContext) -> ApprovalService:
    return require_service(context.services.approvals, "Approvals are not available here.")


def _answerer(context: CommandContext) -> Answerer:
    return Answerer(
        session=context.conversation.session.id,
        principal=context.caller.principal,
        role=context.role,
        address=context.caller.address,
    )


async def _trust(context: CommandContext, args: str) -> CommandReply:
    files, directory = context.services.instruction_files, context.conversation.session.cwd
    files = require_service(files, "Instruction files are not available here.")
    if not args:
        return TextReply(_instruction_list(await to_thread.run_sync(files.list_files, directory)))
    file = await to_thread.run_sync(files.trust, directory, args)
    return TextReply(
        f"{file.path} is trusted in its current form, starting with the next session (/new). If it "
        f"changes, trust it again. Its content:\n\n"
        f"{head_and_tail(escape_controls(file.text), _MAX_SHOWN)}"
    )


def _instruction_list(files: Sequence[InstructionFile]) -> str:
    """List the files; only the first trusted one is used."""
    if not files:
        return "This working directory has no instruction files."
    lines: list[str] = []
    has_followed = False
    for file in files:
        used = "used" if file.followed and not has_followed else "trusted, but not used"
        has_followed |= file.followed
        state = used if file.followed else "not trusted"
        lines.append(f"  {file.path}  {state}")
    if not all(file.followed for file in files):
        lines.append("Read the file first, then trust it with: /trust FILE")
    return "\n".join(lines)


_approval_command = partial(
    Command, is_available=lambda context: context.services.approvals is not None
)

COMMANDS = (
    _approval_command(
        name="approve",
        usage="[session | always] [id | all]",
        summary="Approve what the agent asks for.",
        availability=Availability.CHAT,
        run=_approve,
    ),
    _approval_command(
        name="deny",
        usage="[id | all] [reason]",
        summary="Deny what the agent asks for.",
        availability=Availability.CHAT,
        run=_deny,
    ),
    _approval_command(
        name="yolo",
        usage="[on | off]",
        summary="Turn approvals off for this session, or on again.",
        owner_only=True,
        run=_yolo,
    ),
    _approval_command(
        name="approvals",
        usage="[list | revoke id]",
        summary="List saved approvals, or revoke one.",
        owner_only=True,
        run=_approvals,
    ),
    Command(
        name="trust",
        usage="[file]",
        summary="List the instruction files in this working directory, or trust one.",
        owner_only=True,
        is_available=lambda context: context.services.instruction_files is not None,
        run=_trust,
    ),
)
