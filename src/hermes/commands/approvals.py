"""Commands about leave: give it, refuse it, see what was given, or ask for none."""

import re
from collections.abc import Sequence

from anyio import to_thread

from hermes.approvals.service import Answerer, ApprovalService
from hermes.commands.command import Availability, Command, CommandContext, CommandReply, TextReply
from hermes.commands.services import InstructionFile, InstructionFiles
from hermes.kit.terminal_text import escape_controls
from hermes.kit.text import head_and_tail, one_line
from hermes.schema.errors import UsageError
from hermes.schema.questions import ApprovalChoice

_ID_LENGTH = 8
"""Letters of an id that are enough to name it."""
_CHOICES = frozenset({"once", "session", "always"})
_QUESTION_ID = re.compile(r"(?:ask_)?[0-9A-Za-z]{6,40}")


async def _approve(context: CommandContext, words: str) -> CommandReply:
    given = words.split()
    everything = "all" in map(str.lower, given)
    chosen = [one.lower() for one in given if one.lower() in _CHOICES]
    named = [one for one in given if one.lower() not in {*_CHOICES, "all"}]
    wrong = (
        len(chosen) > 1 or len(named) > 1 or any(not _QUESTION_ID.fullmatch(one) for one in named)
    )
    if wrong or (named and everything):
        raise UsageError(
            "/approve takes nothing, session or always, and the id of a request.",
            hint="For example: /approve session, or /approve 1A2B3C",
        )
    choice = ApprovalChoice(chosen[0]) if chosen else ApprovalChoice.ONCE
    question = "".join(named) or ("" if everything else context.seat.question)
    heard = await _approval_service(context).answer(
        _answerer(context), choice, question=question, everything=everything
    )
    return TextReply(heard.told)


async def _deny(context: CommandContext, words: str) -> CommandReply:
    first, _, rest = words.partition(" ")
    desk, who = _approval_service(context), _answerer(context)
    everything = first.lower() == "all"
    named = bool(_QUESTION_ID.fullmatch(first)) and await desk.asks(who, first)
    reason = rest.strip() if everything or named else words
    replied = "" if everything else context.seat.question
    heard = await desk.answer(
        who,
        ApprovalChoice.DENY,
        question=first if named else replied,
        words=reason,
        everything=everything,
    )
    return TextReply(heard.told)


async def _yolo(context: CommandContext, words: str) -> CommandReply:
    desk, session = _approval_service(context), context.conversation.session
    if context.in_chat and not context.conversation.started:
        raise UsageError("There is no session here yet.", hint="Say something first.")
    match words.lower():
        case "":
            on = not await desk.yolo(session.id)
        case "on" | "off":
            on = words.lower() == "on"
        case _:
            raise UsageError("/yolo takes nothing, on or off.")
    await desk.set_yolo(session.id, on=on)
    if on:
        return TextReply(
            "In this session nothing is asked for any more. What ruins the machine is still "
            "refused. /yolo again asks as before."
        )
    return TextReply("In this session you are asked again.")


async def _approvals(context: CommandContext, words: str) -> CommandReply:
    desk = _approval_service(context)
    match words.split():
        case [] | ["list"]:
            return TextReply(await _grant_list(desk, context.conversation.session.id))
        case ["revoke", name]:
            grant = await desk.revoke(name)
            return TextReply(f"No longer allowed: {one_line(grant.shown, 200)}")
        case _:
            raise UsageError(
                "/approvals takes list or revoke.", hint="For example: /approvals revoke 1A2B3C4D"
            )


async def _grant_list(desk: ApprovalService, session: str) -> str:
    lengths = {"": "always", session: "this session"}
    lines = [
        f"{one.id[-_ID_LENGTH:]}  {lengths.get(one.session, 'another session')}  "
        f"{one.tool} ({one.reaching}): {one_line(one.shown, 120)}"
        for one in await desk.grants()
    ]
    lines += [f"settings  command_allowlist: {line}" for line in desk.rules.allow]
    if not lines:
        return "Nothing is allowed beforehand."
    return "\n".join([*lines, "/approvals revoke ID takes one back."])


def _approval_service(context: CommandContext) -> ApprovalService:
    desk = context.services.approvals
    if desk is None:
        raise UsageError("Nobody asks for leave here.")
    return desk


def _answerer(context: CommandContext) -> Answerer:
    return Answerer(
        session=context.conversation.session.id,
        principal=context.seat.principal,
        role=context.role,
        address=context.seat.address,
    )


def _has_approvals(context: CommandContext) -> bool:
    return context.services.approvals is not None


COMMANDS = (
    Command(
        name="approve",
        usage="[session | always] [id | all]",
        summary="Allow what the agent asks leave for.",
        where=Availability.CHAT,
        needs=_has_approvals,
        run=_approve,
    ),
    Command(
        name="deny",
        usage="[id | all] [reason]",
        summary="Refuse what the agent asks leave for.",
        where=Availability.CHAT,
        needs=_has_approvals,
        run=_deny,
    ),
    Command(
        name="yolo",
        usage="[on | off]",
        summary="Ask for nothing in this session, or ask again.",
        owners=True,
        needs=_has_approvals,
        run=_yolo,
    ),
    Command(
        name="approvals",
        usage="[list | revoke id]",
        summary="Show what is allowed beforehand, or take it back.",
        owners=True,
        needs=_has_approvals,
        run=_approvals,
    ),
)


_MAX_SHOWN = 20_000


async def _trust(context: CommandContext, words: str) -> CommandReply:
    guides, workspace = _instruction_files(context), context.conversation.session.cwd
    if not words:
        return TextReply(_instruction_list(await to_thread.run_sync(guides.of, workspace)))
    guide = await to_thread.run_sync(guides.vouch, workspace, words)
    return TextReply(
        f"{guide.path} is followed as it stands now, from the next session on (/new). Once it has "
        f"changed, it has to be trusted anew. It says:\n\n"
        f"{head_and_tail(escape_controls(guide.text), _MAX_SHOWN)}"
    )


def _instruction_list(found: Sequence[InstructionFile]) -> str:
    if not found:
        return "No file tells how things are done in this workspace."
    lines: list[str] = []
    spoken = False
    for guide in found:
        used = "followed" if guide.followed and not spoken else "not needed"
        spoken |= guide.followed
        state = used if guide.followed else "not followed: it may be somebody else's words"
        lines.append(f"  {guide.path}  {state}")
    if not all(guide.followed for guide in found):
        lines.append("Read it first; then /trust with its name has it followed as it stands.")
    return "\n".join(lines)


def _instruction_files(context: CommandContext) -> InstructionFiles:
    guides = context.services.guides
    if guides is None:
        raise UsageError("Where files came from is not known here.")
    return guides


def _has_instruction_files(context: CommandContext) -> bool:
    return context.services.guides is not None


TRUST_COMMANDS = (
    Command(
        name="trust",
        usage="[file]",
        summary="See which file tells how things are done here, or vouch for one.",
        owners=True,
        needs=_has_instruction_files,
        run=_trust,
    ),
)
