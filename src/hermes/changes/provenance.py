"""Whose words a change is made of, and whether a person must decide before it is made."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.changes.change import Author, Origin
from hermes.changes.owner_words import asked_to_remember
from hermes.ports.tool import ToolContext
from hermes.schema.scope import Role

WAITS = "Not done yet: it waits for you in /changes."
"""What the person is told of a change that is theirs to decide."""
REVIEW = "review"
"""The source of the sessions in which the agent looks back."""


class Provenance(Struct, frozen=True, kw_only=True):
    """`doubtful`: strangers may have led to it, or it repeats what the person did not write."""

    author: Author
    origin: Origin
    doubtful: bool

    @property
    def said(self) -> str:
        """For people, behind what was done; empty when nothing but the person was heard."""
        words = self.origin.words
        return f" Heard or read before: {', '.join(words)}." if words else ""


def provenance(ctx: ToolContext, text: str, entries: Sequence[str] = ()) -> Provenance:
    """`text` is what is to be kept; `entries` are all of it, where it only adds something.

    What the owner asked for in the same words is the owner's, whatever else was heard or read.
    """
    scope, sources = ctx.scope, ctx.sources(text)
    asker = () if scope.role is Role.OWNER else (f"asked by {scope.asker.name or scope.principal}",)
    strangers = sources.strangers or (("others in this turn",) if ctx.foreign else ())
    owners = not asker and asked_to_remember(entries, sources.own, explicitly=sources.quotes)
    names = dict.fromkeys((*asker, *strangers, *sources.repeated, *sources.read))
    return Provenance(
        author=Author.REVIEW if scope.source == REVIEW else Author.AGENT,
        origin=Origin(
            session=scope.session,
            run=scope.run,
            principal=scope.principal,
            words=tuple(names),
        ),
        doubtful=bool(asker or strangers or sources.repeated) and not owners,
    )
