"""What the person is told of a review: one line, and nothing when nothing was kept."""

from enum import StrEnum

from hermes.changes.change import Change, Proposal
from hermes.changes.differences import in_full
from hermes.review.reviewer import Findings

_SHOWN = 3


class Notifying(StrEnum):
    OFF = "off"
    ON = "on"
    VERBOSE = "verbose"


def told(findings: Findings, how: Notifying) -> str:
    """Empty when there is nothing to say, or nobody wants to hear it."""
    if how is Notifying.OFF or not findings:
        return ""
    parts = [_named(change) for change in findings.changes[:_SHOWN]]
    if more := len(findings.changes) - _SHOWN:
        parts += [f"{more} more"] if more > 0 else []
    if findings.proposals:
        parts.append("for you to decide: " + ", ".join(map(_named, findings.proposals[:_SHOWN])))
    line = f"💾 Looking back: {'; '.join(parts)}. See /changes."
    if how is Notifying.VERBOSE:
        line = "\n".join([line, *(in_full(change) for change in findings.changes)])
    return line


def _named(one: Change | Proposal) -> str:
    words = f" (heard or read before: {', '.join(one.origin.words)})" if one.origin.words else ""
    return f"{one.kind} {one.summary}{words}"
