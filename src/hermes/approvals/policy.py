"""May it be done? Decided from rules, the wish, and who asks: no clock, no disk, nobody asked."""

import fnmatch
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hermes.approvals.grants import AllowRule, Grant, leaves_sandbox
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.scope import Role, Scope

if TYPE_CHECKING:
    from hermes.approvals.shell.nested_commands import CommandAnalysis
    from hermes.approvals.shell.parser import ShellContext

CRON_SOURCE = "cron"
API_SOURCE = "api_server"
"""Whoever asks there for somebody else has the owner's key, and answers with it."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
DIRECT_CHAT = "dm"


class ApprovalMode(StrEnum):
    MANUAL = "manual"
    SMART = "smart"
    OFF = "off"


class ApprovalRules(Struct, frozen=True, kw_only=True):
    """What the settings say. `yolo` lets everything pass that is not on the hard list.

    `members` may answer for themselves; else the owner must. `cron` is what happens to what
    nobody can be asked for there. `path` is where commands look for programs.
    """

    mode: ApprovalMode = ApprovalMode.SMART
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    members: bool = False
    cron: bool = False
    yolo: bool = False
    home: str = "/root"
    ours: str = ""
    path: str = ""


class StandingApprovals(Struct, frozen=True, kw_only=True):
    """What was allowed before: in general, and for this session."""

    grants: Sequence[Grant] = ()
    yolo: bool = False


class Allowed(Struct, frozen=True):
    pass


class Denied(Struct, frozen=True):
    why: str


class NeedsApproval(Struct, frozen=True, kw_only=True):
    """A person decides; `smart` says that a model may, first. `why` is for the person."""

    why: str
    smart: bool = False
    owner_only: bool = False


PolicyDecision: TypeAlias = Allowed | Denied | NeedsApproval

_ISOLATION_TEXT = {
    Isolation.NETWORK: "It would use the network.",
    Isolation.BEYOND: "It would act outside of the sandbox.",
    Isolation.OPEN: "Nothing holds it back: there is no sandbox around it.",
    Isolation.INSIDE: "It stays inside the sandbox.",
}


def apply_policy(
    rules: ApprovalRules, wish: ApprovalRequest, scope: Scope, standing: StandingApprovals
) -> PolicyDecision:
    whole = _analyze(rules, wish)
    if refusal := _denial(rules, wish, scope, whole):
        return Denied(refusal)
    if wish.reaching is Isolation.INSIDE or _is_auto_approved(rules, scope, standing):
        return Allowed()
    if _is_granted(rules, wish, standing.grants):
        return Allowed()
    why = _approval_reason(rules, wish, whole)
    if not why:
        return Allowed()
    return _decide_or_ask(rules, wish, scope, why)


def _analyze(rules: ApprovalRules, wish: ApprovalRequest) -> "CommandAnalysis | None":
    code = wish.code or wish.reaching is Isolation.OPEN
    if not wish.shell and not code:
        return None
    from hermes.approvals.shell.nested_commands import analyze_code, analyze_script, merge_analyses  # noqa: PLC0415 - only commands need a reader

    place = _shell_context(rules, wish)
    if not wish.shell:
        return analyze_code(wish.action, place)
    found = analyze_script(wish.action, place)
    return merge_analyses(found, analyze_code(wish.action, place)) if wish.code else found


def _shell_context(rules: ApprovalRules, wish: ApprovalRequest) -> "ShellContext":
    from hermes.approvals.shell.parser import ShellContext  # noqa: PLC0415 - as in `_read`

    return ShellContext(wish.folder or "/", rules.home, rules.ours)


def _denial(
    rules: ApprovalRules, wish: ApprovalRequest, scope: Scope, whole: "CommandAnalysis | None"
) -> str:
    if ruin := _hard_denial(whole, rules):
        return f"Refused: {ruin}. Nobody can allow this; find another way to what is wanted."
    if whole and whole.overlong and wish.reaching is not Isolation.INSIDE:
        return "Refused: it is too long to be judged. Write it to a file, and run that in steps."
    if rule := _matching_deny_rule(rules.deny, wish, whole):
        return (
            f"Refused: the owner's settings forbid it (approvals.deny: {rule}). "
            "Do not try it in another form."
        )
    if scope.role is Role.GUEST and leaves_sandbox(wish):
        return "Refused: guests cannot have this done. Say so, and go on without it."
    return ""


def _hard_denial(whole: "CommandAnalysis | None", rules: ApprovalRules) -> str:
    if whole is None:
        return ""
    from hermes.approvals.shell.hard_deny import hard_deny_reason  # noqa: PLC0415 - as in `_read`

    return hard_deny_reason(whole, [rules.home])


def _matching_deny_rule(
    rules: Sequence[str], wish: ApprovalRequest, whole: "CommandAnalysis | None"
) -> str:
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


def _is_auto_approved(rules: ApprovalRules, scope: Scope, standing: StandingApprovals) -> bool:
    if scope.role is Role.GUEST:
        return False
    if scope.role is Role.OWNER:
        return rules.mode is ApprovalMode.OFF or rules.yolo or scope.yolo or standing.yolo
    return rules.members and (rules.yolo or scope.yolo or standing.yolo)


def _is_granted(rules: ApprovalRules, wish: ApprovalRequest, grants: Sequence[Grant]) -> bool:
    counting = [
        one for one in grants if not (wish.foreign and leaves_sandbox(wish) and one.session)
    ]
    if any(one.covers(wish) for one in counting):
        return True
    listed = wish.shell and wish.reaching is not Isolation.BEYOND
    return listed and any(AllowRule(line).allows(wish.action) for line in rules.allow)


def _approval_reason(
    rules: ApprovalRules, wish: ApprovalRequest, whole: "CommandAnalysis | None"
) -> str:
    """Why a person should decide; empty when nobody needs to."""
    from hermes.approvals.shell.risks import risk_reason  # noqa: PLC0415 - as in `_read`

    danger = risk_reason(whole) if whole else ""
    if not danger and wish.shell and _CONTROL_CHARACTERS.search(wish.action):
        danger = "has keys in it that cannot be read as text"
    told = f"It {danger}." if danger else ""
    if wish.reaching is not Isolation.OPEN:
        return " ".join(filter(None, [_ISOLATION_TEXT[wish.reaching], told]))
    if told:
        return told
    if not wish.shell:
        return _ISOLATION_TEXT[Isolation.OPEN]
    if wish.foreign and not _is_read_only(rules, wish):
        return "Words of strangers are in this conversation, so everything that acts is asked for."
    return ""


def _is_read_only(rules: ApprovalRules, wish: ApprovalRequest) -> bool:
    from hermes.approvals.shell.read_only import is_read_only_script  # noqa: PLC0415 - as in `_read`

    return (
        wish.shell
        and not wish.target
        and is_read_only_script(wish.action, _shell_context(rules, wish))
    )


def _decide_or_ask(
    rules: ApprovalRules, wish: ApprovalRequest, scope: Scope, why: str
) -> PolicyDecision:
    if scope.source == CRON_SOURCE:
        return _decide_scheduled(rules, wish, why)
    own = scope.role is Role.OWNER or (scope.role is Role.MEMBER and rules.members)
    smart = (
        rules.mode is ApprovalMode.SMART
        and own
        and wish.reaching is Isolation.OPEN
        and not wish.foreign
    )
    return NeedsApproval(why=why, smart=smart, owner_only=not own)


def _decide_scheduled(rules: ApprovalRules, wish: ApprovalRequest, why: str) -> PolicyDecision:
    """In a scheduled job: strangers must not be the ones whom the owner's leave serves."""
    told = f"Not done: {_lower(why)} In a scheduled job nobody can be asked"
    if not rules.cron:
        return Denied(f"{told}. The owner can allow it with approvals.cron_mode: approve.")
    if wish.foreign:
        return Denied(
            f"{told}, and words of strangers are in this turn, so approvals.cron_mode does not "
            "count. Do it before reading what others wrote, or say what you wanted to do."
        )
    return Allowed()


def unreachable_reason(scope: Scope, doubt: NeedsApproval) -> str:
    """Why nobody can be asked, and what to do; empty when somebody can."""
    if not scope.attended:
        return (
            f"Not done: {_lower(doubt.why)} It needs approval, and nobody can be asked here. "
            "Tell the user: run it in a chat or an interactive session, or start with --yolo."
        )
    if doubt.owner_only and scope.source != API_SOURCE and not _is_group_chat(scope):
        return (
            f"Not done: {_lower(doubt.why)} Only the owner can allow it, "
            "and the owner is not in this chat."
        )
    return ""


def _is_group_chat(scope: Scope) -> bool:
    """Whether others than the asker read along: agent:<profile>:<platform>:<kind>:…"""
    parts = scope.key.split(":")
    return len(parts) > 3 and parts[3] != DIRECT_CHAT


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
