"""Commands about leave: give it, refuse it, see what was given, or ask for none."""

from hermes.approvals.desk import Answerer, ApprovalDesk
from hermes.commands.command import Command, Context, Reply, Told, Where
from hermes.kit.text import one_line
from hermes.schema.errors import UsageError
from hermes.schema.questions import Choice

_SHOWN = 8
"""Letters of an id that are enough to name it."""


async def _approve(context: Context, words: str) -> Reply:
    given = words.lower().split()
    everything = "all" in given
    rest = [one for one in given if one != "all"]
    if len(rest) > 1 or not {*rest} <= {"once", "session", "always"}:
        raise UsageError(
            "/approve takes nothing, session or always.", hint="For example: /approve session"
        )
    choice = Choice(rest[0]) if rest else Choice.ONCE
    heard = await _desk(context).answer(_who(context), choice, everything=everything)
    return Told(heard.told)


async def _deny(context: Context, words: str) -> Reply:
    first, _, rest = words.partition(" ")
    everything = first.lower() == "all"
    reason = rest.strip() if everything else words
    heard = await _desk(context).answer(
        _who(context), Choice.DENY, words=reason, everything=everything
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
            return Told(await _listed(desk))
        case ["revoke", name]:
            grant = await desk.revoke(name)
            return Told(f"No longer allowed: {one_line(grant.shown, 200)}")
        case _:
            raise UsageError(
                "/approvals takes list or revoke.", hint="For example: /approvals revoke 1A2B3C4D"
            )


async def _listed(desk: ApprovalDesk) -> str:
    grants = await desk.grants()
    lines = [
        f"{one.id[-_SHOWN:]}  {'this session' if one.session else 'always'}  "
        f"{one.tool} ({one.reaching}): {one_line(one.shown, 120)}"
        for one in grants
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
        usage="[session | always] [all]",
        summary="Allow what the agent asks leave for.",
        where=Where.CHAT,
        needs=_has_desk,
        run=_approve,
    ),
    Command(
        name="deny",
        usage="[all] [reason]",
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
