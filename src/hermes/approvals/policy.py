"""Decide from the rules whether a request is allowed, denied or needs approval."""

import fnmatch
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from hermes.approvals.saved_approvals import AllowRule, covers, leaves_sandbox
from hermes.ports.approval_records import SavedApproval
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.scope import Role, Scope

if TYPE_CHECKING:
    from hermes.approvals.shell_commands import ShellContext, ShellScript

CRON_SOURCE = "cron"
API_SOURCE = "api_server"
"""API callers hold the owner's key, so they may answer for the owner."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
DIRECT_CHAT = "dm"


class ApprovalMode(StrEnum):
    MANUAL = "manual"
    SMART = "smart"
    OFF = "off"


class ApprovalRules(Struct, frozen=True, kw_only=True):
    """The approval settings. `yolo` allows everything that is not on the hard-deny list.

    `members` lets members approve their own requests; otherwise the owner must. `cron` allows what
    needs approval in scheduled jobs. `path` is the program search path of commands.
    """

    mode: ApprovalMode = ApprovalMode.SMART
    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    members: bool = False
    cron: bool = False
    yolo: bool = False
    home: str = "/root"
    hermes_home: str = ""
    path: str = ""


class StandingApprovals(Struct, frozen=True, kw_only=True):
    """What was allowed before: permanently, and for this session."""

    saved: Sequence[SavedApproval] = ()
    yolo: bool = False


class Allowed(Struct, frozen=True):
    pass


class Denied(Struct, frozen=True):
    why: str


class NeedsApproval(Struct, frozen=True, kw_only=True):
    """A person decides; with `smart`, a model may decide first. `why` is shown to the person."""

    why: str
    smart: bool = False
    owner_only: bool = False


PolicyDecision: TypeAlias = Allowed | Denied | NeedsApproval

_ISOLATION_TEXT = {
    Isolation.NETWORK: "It uses the network.",
    Isolation.BEYOND: "It acts outside the sandbox.",
    Isolation.OPEN: "It runs without a sandbox.",
    Isolation.INSIDE: "It stays inside the sandbox.",
}


def apply_policy(
    rules: ApprovalRules, request: ApprovalRequest, scope: Scope, standing: StandingApprovals
) -> PolicyDecision:
    whole = _analyze(rules, request)
    if denial := _denial(rules, request, scope, whole):
        return Denied(denial)
    if _is_auto_approved(rules, scope, standing):
        return Allowed()
    if request.reaching is Isolation.INSIDE and not request.caution:
        return Allowed()
    if _is_saved(rules, request, standing.saved):
        return Allowed()
    why = request.caution or _approval_reason(rules, request, whole)
    return _decide_or_ask(rules, request, scope, why) if why else Allowed()


def _analyze(rules: ApprovalRules, request: ApprovalRequest) -> "ShellScript | None":
    code = request.code or request.reaching is Isolation.OPEN
    if not request.shell and not code:
        return None
    from hermes.approvals.shell_commands import parse_script  # noqa: PLC0415 - only for commands

    return parse_script(
        request.action,
        _shell_context(rules, request),
        shell=request.shell,
        code=request.code or not request.shell,
    )


def _shell_context(rules: ApprovalRules, request: ApprovalRequest) -> "ShellContext":
    from hermes.approvals.shell_commands import ShellContext  # noqa: PLC0415 - only for commands

    return ShellContext(request.folder or "/", rules.home, rules.hermes_home)


def _denial(
    rules: ApprovalRules, request: ApprovalRequest, scope: Scope, whole: "ShellScript | None"
) -> str:
    if whole:
        from hermes.approvals.shell_hints import hard_deny_reason  # noqa: PLC0415 - only for commands

        if reason := hard_deny_reason(whole, [rules.home]):
            return f"Denied: {reason}. This can never be allowed; find another way to the goal."
    if whole and whole.too_long and request.reaching is not Isolation.INSIDE:
        return "Denied: it is too long to check. Write it to a file, and run that in steps."
    if rule := _matching_deny_rule(rules.deny, request, whole):
        return (
            f"Denied: the owner's settings forbid it (approvals.deny: {rule}). "
            "Do not try it in another form."
        )
    if scope.role is Role.GUEST and leaves_sandbox(request):
        return "Denied: guests may not do this. Say so, and go on without it."
    return ""


def _matching_deny_rule(
    rules: Sequence[str], request: ApprovalRequest, whole: "ShellScript | None"
) -> str:
    """Match patterns against the text and against every command in it."""
    texts = [request.action, " ".join(request.action.split())]
    texts += request.detail.splitlines() if request.shell else []
    # A tool that is approved as a whole can be denied by its name alone.
    texts += [request.tool] if request.kind else []
    for found in whole.commands if whole else ():
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


def _is_saved(
    rules: ApprovalRules, request: ApprovalRequest, saved: Sequence[SavedApproval]
) -> bool:
    counting = [
        approval
        for approval in saved
        if not (request.foreign and leaves_sandbox(request) and approval.session)
    ]
    if any(covers(approval, request) for approval in counting):
        return True
    listed = request.shell and request.reaching is not Isolation.BEYOND
    return listed and any(AllowRule(line).allows(request.action) for line in rules.allow)


def _approval_reason(
    rules: ApprovalRules, request: ApprovalRequest, whole: "ShellScript | None"
) -> str:
    """Why a person should decide; empty when no approval is needed."""
    from hermes.approvals.shell_hints import risk_reason  # noqa: PLC0415 - only for commands

    risk = risk_reason(whole) if whole else ""
    if not risk and request.shell and _CONTROL_CHARACTERS.search(request.action):
        risk = "contains control characters"
    reason = f"It {risk}." if risk else ""
    if request.reaching is not Isolation.OPEN:
        return " ".join(filter(None, [_ISOLATION_TEXT[request.reaching], reason]))
    if reason:
        return reason
    if not request.shell:
        return _ISOLATION_TEXT[Isolation.OPEN]
    if request.foreign and not _is_read_only(rules, request):
        return "This conversation contains untrusted content, so every action needs approval."
    return ""


def _is_read_only(rules: ApprovalRules, request: ApprovalRequest) -> bool:
    from hermes.approvals.shell_hints import is_read_only_script  # noqa: PLC0415 - only for commands

    return (
        request.shell
        and not request.target
        and is_read_only_script(request.action, _shell_context(rules, request))
    )


def _decide_or_ask(
    rules: ApprovalRules, request: ApprovalRequest, scope: Scope, why: str
) -> PolicyDecision:
    if scope.source == CRON_SOURCE:
        return _decide_scheduled(rules, request, why)
    own = scope.role is Role.OWNER or (scope.role is Role.MEMBER and rules.members)
    smart = (
        rules.mode is ApprovalMode.SMART
        and own
        and request.reaching is Isolation.OPEN
        and not request.foreign
        and not request.caution
    )
    return NeedsApproval(why=why, smart=smart, owner_only=not own)


def _decide_scheduled(rules: ApprovalRules, request: ApprovalRequest, why: str) -> PolicyDecision:
    """Decide for a scheduled job: untrusted content must not profit from the owner's permission."""
    reason = f"Not done: {_lower(why)} No one can be asked in a scheduled job"
    if not rules.cron:
        return Denied(f"{reason}. The owner can allow it with approvals.cron_mode: approve.")
    if request.foreign:
        return Denied(
            f"{reason}, and this turn contains untrusted content, so approvals.cron_mode does not "
            "apply. Do it before reading what others wrote, or say what you wanted to do."
        )
    return Allowed()


def unreachable_reason(scope: Scope, needed: NeedsApproval) -> str:
    """Explain why no one can be asked, and what to do; empty when someone can."""
    if not scope.attended:
        return (
            f"Not done: {_lower(needed.why)} It needs approval, and no one can be asked here. "
            "Tell the user: run it in a chat or an interactive session, or start with --yolo."
        )
    if needed.owner_only and scope.source != API_SOURCE and not _is_group_chat(scope):
        return (
            f"Not done: {_lower(needed.why)} Only the owner can allow it, "
            "and the owner is not in this chat."
        )
    return ""


def _is_group_chat(scope: Scope) -> bool:
    """Whether other people read along: agent:<profile>:<platform>:<kind>:…"""
    parts = scope.key.split(":")
    return len(parts) > 3 and parts[3] != DIRECT_CHAT


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
