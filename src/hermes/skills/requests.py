"""A wish to change a skill, as data: done at once, or kept until a person decides."""

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from hermes.changes.change import Proposal
from hermes.changes.scan import suspicion
from hermes.skills.document import BadSkill
from hermes.skills.editing import By, Editor

Action = Literal["create", "patch", "edit", "delete", "write_file", "remove_file"]


class SkillRequest(Struct, frozen=True, forbid_unknown_fields=True):
    action: Action
    name: str
    content: str = ""
    category: str = ""
    old_string: str = ""
    new_string: str = ""
    replace_all: bool = False
    file_path: str = ""
    file_content: str = ""
    absorbed_into: str = ""

    @property
    def text(self) -> str:
        """All that would be in a file afterwards."""
        return "\n".join(filter(None, [self.content, self.new_string, self.file_content]))


class Proposed(Struct, frozen=True):
    """`merge`: what is deleted goes along with the skill that it is absorbed into.

    `seen` is the digest of its text when that was put before a person.
    """

    request: SkillRequest
    by: By
    merge: bool = False
    seen: str = ""


async def perform(editor: Editor, asked: SkillRequest, by: By) -> str:
    """Where the skill lies now, for what makes or moves it. Raises `BadSkill`, `Drifted`."""
    match asked.action:
        case "create":
            return await editor.create(asked.name, asked.content, asked.category, by)
        case "edit":
            await editor.rewrite(asked.name, asked.content, by)
        case "patch":
            swap = asked.old_string, asked.new_string
            await editor.patch(asked.name, asked.file_path, swap, by, every=asked.replace_all)
        case "write_file":
            await editor.write_file(asked.name, asked.file_path, asked.file_content, by)
        case "remove_file":
            await editor.remove_file(asked.name, asked.file_path, by)
        case "delete":
            return await editor.archive(asked.name, by)
    return ""


async def propose(editor: Editor, asked: SkillRequest, by: By) -> Proposal:
    """Let it wait. What could not be done now is refused now. Raises `BadSkill`."""
    await editor.check(asked.name, by, content=asked.content, new=asked.action == "create")
    if why := suspicion(asked.text):
        raise BadSkill(f"This was not proposed: it {why}.")
    request = Raw(msgspec.json.encode(Proposed(asked, by)))
    return await editor.propose(asked.name, f"{asked.action} {asked.name}", request, by)


async def accept(editor: Editor, proposal: Proposal) -> str:
    """A person wants it: done to the skill as it is by now. Raises `BadSkill`, `Drifted`.

    Only what is merged must still be as it was shown: all of its text is taken over.
    """
    proposed = msgspec.json.decode(proposal.request, type=Proposed)
    asked, by = proposed.request, proposed.by
    if proposed.merge:
        where = await editor.absorb(asked.name, asked.absorbed_into, by, seen=proposed.seen)
    else:
        where = await perform(editor, asked, by)
    await editor.decide(proposal, accepted=True)
    return where
