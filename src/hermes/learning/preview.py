"""Show what a pending proposal would change, and let a person edit its text."""

from pathlib import Path

import msgspec
from msgspec import Raw, structs

from hermes.learning.ledger import read_if_present
from hermes.learning.memory import (
    InvalidOperation,
    MemoryRequest,
    MemoryStore,
    apply_operations,
    join_entries,
)
from hermes.learning.skills.catalog import SKILL_FILE, SkillCatalog
from hermes.learning.skills.editor import SKILL_KIND, ProposedRequest, SkillRequest
from hermes.ports.ledger import FileEdit, Proposal

_EDITED = "edited before it was approved"
_TEXT_FIELDS = {
    "create": "content",
    "edit": "content",
    "patch": "new_string",
    "write_file": "file_content",
}
"""The field with the text of each action on a skill."""


def proposed_edit(
    memory: MemoryStore, catalog: SkillCatalog, home: Path, proposal: Proposal
) -> FileEdit | None:
    """Return the change to the current file; None if it can no longer be made."""
    if proposal.kind == SKILL_KIND:
        return _skill_edit(catalog, home, _skill_request(proposal).request)
    request = msgspec.json.decode(proposal.request, type=MemoryRequest)
    file = memory.read_now(request.target)
    try:
        after = apply_operations(file.entries, request.operations)
    except InvalidOperation:
        return None
    return FileEdit(request.target.file, file.data, join_entries(after).encode())


def editable_text(proposal: Proposal) -> str | None:
    """Return the text of a proposal that has exactly one."""
    if proposal.kind == SKILL_KIND:
        request = _skill_request(proposal).request
        field = _TEXT_FIELDS.get(request.action)
        return None if field is None else str(getattr(request, field))
    request = msgspec.json.decode(proposal.request, type=MemoryRequest)
    match request.operations:
        case (one,) if one.action != "remove":
            return one.content
        case _:
            return None


def with_text(proposal: Proposal, text: str) -> Proposal:
    """Return the proposal with another text; raises `ValueError` unless it has exactly one."""
    if editable_text(proposal) is None:
        raise ValueError("this proposal cannot be edited as one text")
    why = "; ".join(filter(None, [proposal.why, _EDITED]))
    if proposal.kind == SKILL_KIND:
        edit = _skill_request(proposal)
        field = _TEXT_FIELDS[edit.request.action]
        changed = structs.replace(
            edit,
            request=structs.replace(edit.request, **{field: text}),
            by=structs.replace(edit.by, why=why),
        )
        return structs.replace(proposal, request=Raw(msgspec.json.encode(changed)))
    request = msgspec.json.decode(proposal.request, type=MemoryRequest)
    (operation,) = request.operations
    operations = (structs.replace(operation, content=text),)
    edited = structs.replace(request, operations=operations, why=why)
    return structs.replace(proposal, request=Raw(msgspec.json.encode(edited)))


def _skill_request(proposal: Proposal) -> ProposedRequest:
    return msgspec.json.decode(proposal.request, type=ProposedRequest)


def _skill_edit(catalog: SkillCatalog, home: Path, request: SkillRequest) -> FileEdit | None:
    if request.action == "create":
        folder = "/".join(filter(None, ["skills", request.category, request.name]))
        return FileEdit(f"{folder}/{SKILL_FILE}", None, request.content.encode())
    skill = catalog.find(request.name)
    if skill is None or not skill.own:
        return None
    file = Path(skill.folder, request.file_path) if request.file_path else skill.file
    before = read_if_present(file)
    after = _text_after(request, (before or b"").decode("utf-8", "replace"))
    path = file.relative_to(home).as_posix()
    return FileEdit(path, before, None if after is None else after.encode())


def _text_after(request: SkillRequest, before: str) -> str | None:
    match request.action:
        case "create" | "edit":
            return request.content
        case "patch":
            return before.replace(request.old_string, request.new_string)
        case "write_file":
            return request.file_content
        case "delete" | "remove_file":
            return None
