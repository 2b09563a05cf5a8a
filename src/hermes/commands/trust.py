"""The command to vouch for a file that tells how things are done in a project."""

from collections.abc import Sequence

from anyio import to_thread

from hermes.commands.command import Command, Context, Reply, Told
from hermes.commands.services import Guide, Guides
from hermes.kit.plain import harmless
from hermes.kit.text import head_and_tail
from hermes.schema.errors import UsageError

_SHOWN = 20_000


async def _trust(context: Context, words: str) -> Reply:
    guides, workspace = _guides(context), context.conversation.session.cwd
    if not words:
        return Told(_listed(await to_thread.run_sync(guides.of, workspace)))
    guide = await to_thread.run_sync(guides.vouch, workspace, words)
    return Told(
        f"{guide.path} is followed as it stands now, from the next session on (/new). Once it has "
        f"changed, it has to be trusted anew. It says:\n\n"
        f"{head_and_tail(harmless(guide.text), _SHOWN)}"
    )


def _listed(found: Sequence[Guide]) -> str:
    if not found:
        return "No file tells how things are done in this workspace."
    lines: list[str] = []
    spoken = False
    for guide in found:
        used = "followed" if guide.followed and not spoken else "not needed"
        spoken |= guide.followed
        state = used if guide.followed else "not followed: it may be somebody else's words"
        lines.append(f"  {guide.path}  {state}")
    if not all(guide.followed for guide in found):
        lines.append("Read it first; then /trust with its name has it followed as it stands.")
    return "\n".join(lines)


def _guides(context: Context) -> Guides:
    guides = context.services.guides
    if guides is None:
        raise UsageError("Where files came from is not known here.")
    return guides


def _is_known(context: Context) -> bool:
    return context.services.guides is not None


COMMANDS = (
    Command(
        name="trust",
        usage="[file]",
        summary="See which file tells how things are done here, or vouch for one.",
        owners=True,
        needs=_is_known,
        run=_trust,
    ),
)
