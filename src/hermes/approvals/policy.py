"""May it be done? Decided from rules, the wish, and who asks: no clock, no disk, nobody asked."""

import fnmatch
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hermes.approvals.simple import AllowRule, Grant, is_far
from hermes.ports.counsel import Reaching, Wish
from hermes.schema.scope import Role, Scope

if TYPE_CHECKING:
    from hermes.approvals.script import Place
    from hermes.approvals.unwrap import Whole

CRON = "cron"
BY_KEY = "api_server"
"""Whoever asks there for somebody else has the owner's key, and answers with it."""
_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
DIRECT = "dm"


class Mode(StrEnum):
    MANUAL = "manual"
    SMART = "smart"
    OFF = "off"


class Rules(Struct, frozen=True, kw_only=True):
    """What the settings say. `yolo` lets everything pass that is not on the hard list.

    `members` may answer for themselves; else the owner must. `cron` is what happens to what
    nobody can be asked for there. `path` is where commands look for programs.
    """

    mode: Mode = Mode.SMART
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    members: bool = False
    cron: bool = False
    yolo: bool = False
    home: str = "/root"
    ours: str = ""
    path: str = ""


class Standing(Struct, frozen=True, kw_only=True):
    """What was allowed before: in general, and for this session."""

    grants: Sequence[Grant] = ()
    yolo: bool = False


class Allowed(Struct, frozen=True):
    pass


class Refused(Struct, frozen=True):
    why: str


class Doubtful(Struct, frozen=True, kw_only=True):
    """A person decides; `smart` says that a model may, first. `why` is for the person."""

    why: str
    smart: bool = False
    owner_only: bool = False


Verdict: TypeAlias = Allowed | Refused | Doubtful

_REACHES = {
    Reaching.NETWORK: "It would use the network.",
    Reaching.BEYOND: "It would act outside of the sandbox.",
    Reaching.OPEN: "Nothing holds it back: there is no sandbox around it.",
    Reaching.INSIDE: "It stays inside the sandbox.",
}


def verdict(rules: Rules, wish: Wish, scope: Scope, standing: Standing) -> Verdict:
    whole = _read(rules, wish)
    if refusal := _forbidden(rules, wish, scope, whole):
        return Refused(refusal)
    if wish.reaching is Reaching.INSIDE or _is_free(rules, scope, standing):
        return Allowed()
    if _is_granted(rules, wish, standing.grants):
        return Allowed()
    why = _doubt(rules, wish, whole)
    if not why:
        return Allowed()
    return _decided_by(rules, wish, scope, why)


def _read(rules: Rules, wish: Wish) -> "Whole | None":
    code = wish.code or wish.reaching is Reaching.OPEN
    if not wish.shell and not code:
        return None
    from hermes.approvals.unwrap import every_call, every_command, joined  # noqa: PLC0415 - only commands need a reader

    place = _place(rules, wish)
    if not wish.shell:
        return every_call(wish.action, place)
    found = every_command(wish.action, place)
    return joined(found, every_call(wish.action, place)) if wish.code else found


def _place(rules: Rules, wish: Wish) -> "Place":
    from hermes.approvals.script import Place  # noqa: PLC0415 - as in `_read`

    return Place(wish.folder or "/", rules.home, rules.ours)


def _forbidden(rules: Rules, wish: Wish, scope: Scope, whole: "Whole | None") -> str:
    if ruin := _ruin(whole, rules):
        return f"Refused: {ruin}. Nobody can allow this; find another way to what is wanted."
    if whole and whole.overlong and wish.reaching is not Reaching.INSIDE:
        return "Refused: it is too long to be judged. Write it to a file, and run that in steps."
    if rule := _denied(rules.deny, wish, whole):
        return (
            f"Refused: the owner's settings forbid it (approvals.deny: {rule}). "
            "Do not try it in another form."
        )
    if scope.role is Role.GUEST and is_far(wish):
        return "Refused: guests cannot have this done. Say so, and go on without it."
    return ""


def _ruin(whole: "Whole | None", rules: Rules) -> str:
    if whole is None:
        return ""
    from hermes.approvals.ruin import ruin_in  # noqa: PLC0415 - as in `_read`

    return ruin_in(whole, [rules.home])


def _denied(rules: Sequence[str], wish: Wish, whole: "Whole | None") -> str:
    """Patterns are held against the text and against each command in it, however it is called."""
    texts = [wish.action, " ".join(wish.action.split())]
    texts += wish.detail.splitlines() if wish.shell else []
    # Where leave is given for a tool as a whole, it can be forbidden by its name alone.
    texts += [wish.tool] if wish.kind else []
    for found in whole.found if whole else ():
        texts += [" ".join(found.argv), " ".join((found.name, *found.argv[1:]))]
    for rule in rules:
        if any(fnmatch.fnmatchcase(text, rule) or text == rule for text in texts):
            return rule
    return ""


def _is_free(rules: Rules, scope: Scope, standing: Standing) -> bool:
    if scope.role is Role.GUEST:
        return False
    if scope.role is Role.OWNER:
        return rules.mode is Mode.OFF or rules.yolo or scope.yolo or standing.yolo
    return rules.members and (rules.yolo or scope.yolo or standing.yolo)


def _is_granted(rules: Rules, wish: Wish, grants: Sequence[Grant]) -> bool:
    counting = [one for one in grants if not (wish.foreign and is_far(wish) and one.session)]
    if any(one.covers(wish) for one in counting):
        return True
    listed = wish.shell and wish.reaching is not Reaching.BEYOND
    return listed and any(AllowRule(line).allows(wish.action) for line in rules.allow)


def _doubt(rules: Rules, wish: Wish, whole: "Whole | None") -> str:
    """Why a person should decide; empty when nobody needs to."""
    from hermes.approvals.dangers import danger_in  # noqa: PLC0415 - as in `_read`

    danger = danger_in(whole) if whole else ""
    if not danger and wish.shell and _KEYS.search(wish.action):
        danger = "has keys in it that cannot be read as text"
    told = f"It {danger}." if danger else ""
    if wish.reaching is not Reaching.OPEN:
        return " ".join(filter(None, [_REACHES[wish.reaching], told]))
    if told:
        return told
    if not wish.shell:
        return _REACHES[Reaching.OPEN]
    if wish.foreign and not _only_reads(rules, wish):
        return "Words of strangers are in this conversation, so everything that acts is asked for."
    return ""


def _only_reads(rules: Rules, wish: Wish) -> bool:
    from hermes.approvals.reads import only_reads  # noqa: PLC0415 - as in `_read`

    return wish.shell and not wish.target and only_reads(wish.action, _place(rules, wish))


def _decided_by(rules: Rules, wish: Wish, scope: Scope, why: str) -> Verdict:
    if scope.source == CRON:
        return _decided_alone(rules, wish, why)
    own = scope.role is Role.OWNER or (scope.role is Role.MEMBER and rules.members)
    smart = rules.mode is Mode.SMART and own and wish.reaching is Reaching.OPEN and not wish.foreign
    return Doubtful(why=why, smart=smart, owner_only=not own)


def _decided_alone(rules: Rules, wish: Wish, why: str) -> Verdict:
    """In a scheduled job: strangers must not be the ones whom the owner's leave serves."""
    told = f"Not done: {_lower(why)} In a scheduled job nobody can be asked"
    if not rules.cron:
        return Refused(f"{told}. The owner can allow it with approvals.cron_mode: approve.")
    if wish.foreign:
        return Refused(
            f"{told}, and words of strangers are in this turn, so approvals.cron_mode does not "
            "count. Do it before reading what others wrote, or say what you wanted to do."
        )
    return Allowed()


def unreachable(scope: Scope, doubt: Doubtful) -> str:
    """Why nobody can be asked, and what to do; empty when somebody can."""
    if not scope.attended:
        return (
            f"Not done: {_lower(doubt.why)} It needs approval, and nobody can be asked here. "
            "Tell the user: run it in a chat or an interactive session, or start with --yolo."
        )
    if doubt.owner_only and scope.source != BY_KEY and not _is_shared(scope):
        return (
            f"Not done: {_lower(doubt.why)} Only the owner can allow it, "
            "and the owner is not in this chat."
        )
    return ""


def _is_shared(scope: Scope) -> bool:
    """Whether others than the asker read along: agent:<profile>:<platform>:<kind>:…"""
    parts = scope.key.split(":")
    return len(parts) > 3 and parts[3] != DIRECT


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
