"""Commands about leave: give it, refuse it, see what was given, or ask for none."""

import re

from hermes.approvals.desk import Answerer, ApprovalDesk
from hermes.commands.command import Command, Context, Reply, Told, Where
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.questions import Choice

_SHOWN = 8
"""Letters of an id that are enough to name it."""
_CHOICES = frozenset({"once", "session", "always"})
_ID = re.compile(r"(?:ask_)?[0-9A-Za-z]{6,40}")


async def _approve(context: Context, words: str) -> Reply:
    given = words.split()
    everything = "all" in map(str.lower, given)
    chosen = [one.lower() for one in given if one.lower() in _CHOICES]
    named = [one for one in given if one.lower() not in {*_CHOICES, "all"}]
    wrong = len(chosen) > 1 or len(named) > 1 or any(not _ID.fullmatch(one) for one in named)
    if wrong or (named and everything):
        raise UsageError(
            "/approve takes nothing, session or always, and the id of a request.",
            hint="For example: /approve session, or /approve 1A2B3C",
        )
    choice = Choice(chosen[0]) if chosen else Choice.ONCE
    question = "".join(named) or ("" if everything else context.seat.question)
    heard = await _desk(context).answer(
        _who(context), choice, question=question, everything=everything
    )
    return Told(heard.told)


async def _deny(context: Context, words: str) -> Reply:
    first, _, rest = words.partition(" ")
    desk, who = _desk(context), _who(context)
    everything = first.lower() == "all"
    named = bool(_ID.fullmatch(first)) and await desk.asks(who, first)
    reason = rest.strip() if everything or named else words
    replied = "" if everything else context.seat.question
    heard = await desk.answer(
        who,
        Choice.DENY,
        question=first if named else replied,
        words=reason,
        everything=everything,
    )
    return Told(heard.told)


async def _yolo(context: Context, words: str) -> Reply:
    desk, session = _desk(context), context.conversation.session
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
        return Told(
            "In this session nothing is asked for any more. What ruins the machine is still "
            "refused. /yolo again asks as before."
        )
    return Told("In this session you are asked again.")


async def _approvals(context: Context, words: str) -> Reply:
    desk = _desk(context)
    match words.split():
        case [] | ["list"]:
            return Told(await _listed(desk, context.conversation.session.id))
        case ["revoke", name]:
            grant = await desk.revoke(name)
            return Told(f"No longer allowed: {one_line(grant.shown, 200)}")
        case _:
            raise UsageError(
                "/approvals takes list or revoke.", hint="For example: /approvals revoke 1A2B3C4D"
            )


async def _listed(desk: ApprovalDesk, session: str) -> str:
    lengths = {"": "always", session: "this session"}
    lines = [
        f"{one.id[-_SHOWN:]}  {lengths.get(one.session, 'another session')}  "
        f"{one.tool} ({one.reaching}): {one_line(one.shown, 120)}"
        for one in await desk.grants()
    ]
    lines += [f"settings  command_allowlist: {line}" for line in desk.rules.allow]
    if not lines:
        return "Nothing is allowed beforehand."
    return "\n".join([*lines, "/approvals revoke ID takes one back."])


def _desk(context: Context) -> ApprovalDesk:
    desk = context.services.approvals
    if desk is None:
        raise UsageError("Nobody asks for leave here.")
    return desk


def _who(context: Context) -> Answerer:
    return Answerer(
        session=context.conversation.session.id,
        principal=context.seat.principal,
        role=context.role,
        address=context.seat.address,
    )


def _has_desk(context: Context) -> bool:
    return context.services.approvals is not None


COMMANDS = (
    Command(
        name="approve",
        usage="[session | always] [id | all]",
        summary="Allow what the agent asks leave for.",
        where=Where.CHAT,
        needs=_has_desk,
        run=_approve,
    ),
    Command(
        name="deny",
        usage="[id | all] [reason]",
        summary="Refuse what the agent asks leave for.",
        where=Where.CHAT,
        needs=_has_desk,
        run=_deny,
    ),
    Command(
        name="yolo",
        usage="[on | off]",
        summary="Ask for nothing in this session, or ask again.",
        owners=True,
        needs=_has_desk,
        run=_yolo,
    ),
    Command(
        name="approvals",
        usage="[list | revoke id]",
        summary="Show what is allowed beforehand, or take it back.",
        owners=True,
        needs=_has_desk,
        run=_approvals,
    ),
)
