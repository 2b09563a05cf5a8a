"""Slash commands for memory, skills and their history."""

from functools import partial
from pathlib import Path

from hermes.commands.command import Command, CommandContext, require_service
from hermes.commands.services import LearningControl, SkillSummary
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import command_parts
from hermes.schema.sessions import SessionChange
from hermes.schema.terminal import CommandReply, SubmitReply, TextReply

_MAX_NEWEST = 10
_LEARN_PROMPT = Path(__file__).with_name("learn.md")
_NO_MEMORY_TOOL = "The current model has no memory tool, so it cannot add to this."
_NO_SKILL_TOOLS = "The current model has no skill tools: use a skill with /<name>."
_NO_SKILL_EDITOR = "The current model has no tool to write skills."


async def _memory(context: CommandContext, args: str) -> CommandReply:
    learning = _learning(context)
    match args.split():
        case []:
            return TextReply(
                await learning.memory() + _missing_tool_note(context, "memory", _NO_MEMORY_TOOL)
            )
        case ["pending"]:
            return TextReply("\n".join(await learning.pending("memory")) or "Nothing is pending.")
        case ["approve", name]:
            return TextReply("\n".join(await learning.accept(name, "memory")))
        case ["reject", name]:
            count = await learning.reject(name, "memory")
            return TextReply(f"{plural(count, 'proposal')} rejected.")
        case ["approval"]:
            return TextReply(_approval_text(on=learning.memory_approval()))
        case ["approval", "on" | "off" as action]:
            await learning.set_memory_approval(on=action == "on")
            return TextReply(_approval_text(on=action == "on"))
        case _:
            raise UsageError(
                "/memory takes pending, approve, reject or approval.",
                hint="For example: /memory approve all, or /memory approval on",
            )


def _approval_text(*, on: bool) -> str:
    if on:
        return "Every change to memory needs your approval; /memory pending lists them."
    return "Your own statements are saved immediately; untrusted content needs your approval."


async def _skills(context: CommandContext, args: str) -> CommandReply:
    learning = _learning(context)
    match args.split():
        case [] | ["list"]:
            skills = [*await learning.skills(), *await learning.bundles()]
            lines = "\n".join(map(_skill_line, skills)) or "There are no skills yet."
            note = _missing_tool_note(context, "skill_view", _NO_SKILL_TOOLS)
            return TextReply(lines + note)
        case ["show", name]:
            return TextReply(await learning.skill(name))
        case ["pin" | "unpin" as action, name]:
            await learning.pin(name, pinned=action == "pin")
            text = "is pinned: only you can change it" if action == "pin" else "is no longer pinned"
            return TextReply(f"{name} {text}.")
        case _:
            raise UsageError(
                "/skills takes list, show, pin or unpin.", hint="For example: /skills show tea"
            )


async def _bundles(context: CommandContext, args: str) -> CommandReply:
    if args:
        raise UsageError("/bundles takes no arguments.", hint="/<name> uses a bundle.")
    lines = "\n".join(map(_skill_line, await _learning(context).bundles()))
    return TextReply(lines or "There are no bundles yet. Create one with: hermes bundles create")


def _skill_line(skill: SkillSummary) -> str:
    about = f": {one_line(skill.description, 120)}" if skill.description else ""
    marks = f" ({', '.join(skill.marks)})" if skill.marks else ""
    return f"/{skill.name}{marks}{about}"


async def _changes(context: CommandContext, args: str) -> CommandReply:
    learning = _learning(context)
    match args.split():
        case []:
            return TextReply(await _recent_changes(learning))
        case ["show", name]:
            return TextReply(await learning.describe(name))
        case ["approve", name]:
            return TextReply("\n".join(await learning.accept(name)))
        case ["reject", name]:
            return TextReply(f"{plural(await learning.reject(name), 'proposal')} rejected.")
        case ["undo", name]:
            return TextReply(await learning.undo(name))
        case _:
            raise UsageError(
                "/changes takes show, approve, reject or undo, and an id.",
                hint="For example: /changes show 1a2b3c",
            )


async def _recent_changes(learning: LearningControl) -> str:
    pending, changes = await learning.pending(), await learning.changes(_MAX_NEWEST)
    lines = ["Pending your approval:", *pending, ""] if pending else []
    lines += changes or ["There are no changes."]
    if pending:
        lines.append("Decide with /changes approve ID or reject ID; details: /changes show ID.")
    if changes:
        lines.append("Details: /changes show ID. Revert with /changes undo ID.")
    return "\n".join(lines)


async def _curator(context: CommandContext, args: str) -> CommandReply:
    return TextReply(await _learning(context).curation_report())


async def _reload_skills(context: CommandContext, args: str) -> CommandReply:
    count = len(await _learning(context).skills())
    # The prompt lists them, so the next turn writes a new one.
    await context.conversation.change(SessionChange(system=""))
    return TextReply(f"Loaded {plural(count, 'skill')}; the model sees them in the next turn.")


async def _learn(context: CommandContext, args: str) -> CommandReply:
    if not args:
        raise UsageError("/learn needs a topic.", hint="For example: /learn how we release")
    if _missing_tool_note(context, "skill_manage", _NO_SKILL_EDITOR):
        raise UsageError(_NO_SKILL_EDITOR, hint="Choose another model with /model.")
    prompt = _LEARN_PROMPT.read_text("utf-8").strip().replace("{what}", args)
    return SubmitReply(command_parts(f"/learn {args}", prompt), notice="Writing a skill.")


def _missing_tool_note(context: CommandContext, tool: str, text: str) -> str:
    """The text, if the current model is known to lack the tool."""
    toolbox, session = context.services.toolsets, context.conversation.session
    if toolbox is None:
        return ""
    tools = toolbox.offered(context.caller.platform or session.source, context.role, session)
    return "" if any(spec.name == tool for spec in tools) else f"\n\n{text}"


def _learning(context: CommandContext) -> LearningControl:
    return require_service(context.services.learning, "Learning is not available here.")


_learning_command = partial(
    Command, owner_only=True, is_available=lambda context: context.services.learning is not None
)

COMMANDS = (
    _learning_command(
        name="memory",
        usage="[pending | approve id | reject id | approval on|off]",
        summary="Show memory, and approve or reject changes to it.",
        run=_memory,
    ),
    _learning_command(
        name="skills",
        usage="[list | show name | pin name | unpin name]",
        summary="List skills; /<name> uses one.",
        run=_skills,
    ),
    _learning_command(name="bundles", summary="List bundles of skills.", run=_bundles),
    _learning_command(
        name="changes",
        usage="[show id | approve id | reject id | undo id]",
        summary="List changes to memory and skills, and undo them.",
        run=_changes,
    ),
    _learning_command(name="curator", summary="Show the last curation of skills.", run=_curator),
    _learning_command(
        name="reload-skills", summary="Reload the list of skills.", run=_reload_skills
    ),
    _learning_command(
        name="learn", usage="<what>", summary="Write a skill about something.", run=_learn
    ),
)
