"""Show the family of a session: its ancestors and branches."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.ports.store import SessionArchive
from hermes.schema.errors import NotFound
from hermes.schema.sessions import Session, SessionFilter, SessionSummary
from hermes.web.html import Child, Html, h
from hermes.web.texts import text
from hermes.web.times import moment

MAX_ANCESTORS = 50
MAX_SESSIONS = 200


class Branch(Struct, frozen=True):
    session: Session
    branches: Sequence["Branch"] = ()
    last: SessionSummary | None = None


async def read_family(archive: SessionArchive, session: Session) -> Branch:
    """Return the first ancestor with all of its branches, up to a limit."""
    seen = {session.id}
    root = session
    while root.parent and root.parent not in seen and len(seen) < MAX_ANCESTORS:
        seen.add(root.parent)
        try:
            root = await archive.get(root.parent)
        except NotFound:
            break
    return await _descend(archive, Branch(root), {root.id})


async def _descend(archive: SessionArchive, branch: Branch, seen: set[str]) -> Branch:
    found = await archive.list(SessionFilter(parent=branch.session.id), MAX_SESSIONS)
    below: list[Branch] = []
    for one in sorted(found, key=lambda one: one.session.started_at):
        if one.session.id not in seen and len(seen) < MAX_SESSIONS:
            seen.add(one.session.id)
            below.append(await _descend(archive, Branch(one.session, last=one), seen))
    return Branch(branch.session, below, branch.last)


def family_list(base: str, family: Branch, current: str) -> Html:
    """Nested lists of links; the session that is open is marked."""
    if not family.branches:
        return h("p", text("no_branches"), class_="empty")
    return h("ul", _item(base, family, current), class_="family")


def _item(base: str, branch: Branch, current: str) -> Html:
    session = branch.session
    is_current = session.id == current
    title = session.title or (branch.last.preview if branch.last else "") or session.id
    facts: list[Child] = [moment(branch.last.last_at if branch.last else session.started_at)]
    if branch.last:
        facts.append(h("span", message_count(branch.last.messages)))
    return h(
        "li",
        h("a", title, href=f"{base}/chat/{session.id}", dir="auto",
          aria_current="page" if is_current else None),
        h("span", *facts, class_="facts"),
        h("ul", *(_item(base, one, current) for one in branch.branches))
        if branch.branches else None,
    )  # fmt: skip


def message_count(number: int) -> str:
    return text("one_message") if number == 1 else text("messages_count", count=str(number))
