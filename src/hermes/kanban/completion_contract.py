"""What a task requires besides the worker's word: a pull request whose required checks passed."""

import re

from msgspec import Struct

from hermes.schema.board import JsonObject
from hermes.schema.errors import StateConflict, UsageError

LOCAL_ONLY = "local-only"
PUBLISHED = "published_pr"
"""The entry of a completion's metadata with the address of the pull request."""
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,99})"
_REPOSITORY = re.compile(rf"(?P<repository>{_NAME}/{_NAME})")
_PULL_REQUEST = re.compile(
    rf"https://github\.com/(?P<repository>{_NAME}/{_NAME})/pull/(?P<number>\d{{1,9}})/?"
)


class CompletionContract(Struct, frozen=True):
    """Without a `repository`, the work stays on this machine; `number` names a pull request."""

    repository: str = ""
    number: str = ""


def read_contract(text: str | None) -> CompletionContract | None:
    """`OWNER/REPO`, the address of a pull request or `local-only`. Raises `UsageError`."""
    text = (text or "").strip()
    if not text:
        return None
    if text == LOCAL_ONLY:
        return CompletionContract()
    found = _PULL_REQUEST.fullmatch(text) or _REPOSITORY.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is not a completion contract.",
            hint=f"Use OWNER/REPO, the address of a GitHub pull request, or {LOCAL_ONLY}.",
        )
    return CompletionContract(found["repository"], found.groupdict().get("number") or "")


def published_pull_request(contract: CompletionContract, metadata: JsonObject) -> str:
    """The pull request that the completion names; empty if none is needed.

    Raises `StateConflict` if it is missing, or another one than the contract allows.
    """
    named = str(metadata.get(PUBLISHED) or "").strip()
    if not contract.repository:
        if named:
            raise StateConflict("This task is local-only; nothing may be published for it.")
        return ""
    found = _PULL_REQUEST.fullmatch(named)
    wanted = contract.repository + (f"/pull/{contract.number}" if contract.number else "")
    reference = "" if found is None else f"{found['repository']}/pull/{found['number']}"
    is_allowed = reference == wanted if contract.number else reference.startswith(f"{wanted}/pull/")
    if not is_allowed:
        raise StateConflict(
            f"The task is done when a pull request in {wanted} is published.",
            hint=f"Give its address as `{PUBLISHED}` in `metadata`.",
        )
    return named
