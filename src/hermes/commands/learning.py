"""Commands about what the agent learns: memory, skills, and every change of them."""

from collections.abc import Sequence
from pathlib import Path

from hermes.commands.command import Command, CommandContext, CommandReply, SubmitReply, TextReply
from hermes.commands.services import LearningControl, SkillSummary
from hermes.kit.text import one_line, plural
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text
from hermes.schema.sessions import SessionChange

_MAX_NEWEST = 10
_LEARN_PROMPT = Path(__file__).with_name("learn.md")
_NO_MEMORY_TOOL = "The model that answers here has no tool for memory: it adds nothing to this."
_NO_SKILL_TOOLS = (
    "The model that answers here has no tools for skills: only /<name> has it follow one."
)
_NO_SKILL_EDITOR = (
    "The model that answers here has no tool to write skills, so nothing can be learned."
)


async def _memory(context: CommandContext, words: str) -> CommandReply:
    lessons = _learning(context)
    match words.split():
        case []:
            return TextReply(
                await lessons.memory() + _missing_tool_note(context, "memory", _NO_MEMORY_TOOL)
            )
        case ["pending"]:
            waiting = await lessons.waiting("memory")
            return TextReply("\n".join(waiting) or "Nothing waits for a decision.")
        case ["approve", name]:
            return TextReply("\n".join(await lessons.accept(name, "memory")))
        case ["reject", name]:
            count = await lessons.reject(name, "memory")
            return TextReply(f"{plural(count, 'proposal')} rejected.")
        case ["approval"]:
            return TextReply(_approval_text(on=lessons.asks()))
        case ["approval", "on" | "off" as how]:
            await lessons.set_memory_approval(on=how == "on")
            return TextReply(_approval_text(on=how == "on"))
        case _:
            raise UsageError(
                "/memory takes pending, approve, reject or approval.",
                hint="For example: /memory approve all, or /memory approval on",
            )


def _approval_text(*, on: bool) -> str:
    if on:
        return "Every change of memory waits for you: /memory pending shows them."
    return "What you said is remembered at once; what others wrote waits for you."


async def _skills(context: CommandContext, words: str) -> CommandReply:
    lessons = _learning(context)
    match words.split():
        case [] | ["list"]:
            none = _missing_tool_note(context, "skill_view", _NO_SKILL_TOOLS)
            return TextReply(await _skill_list(lessons) + none)
        case ["show", name]:
            return TextReply(await lessons.skill(name))
        case ["pin" | "unpin" as how, name]:
            await lessons.pin(name, pinned=how == "pin")
            told = "is pinned: only you change it" if how == "pin" else "is not pinned any more"
            return TextReply(f"{name} {told}.")
        case _:
            raise UsageError(
                "/skills takes list, show, pin or unpin.", hint="For example: /skills show tea"
            )


async def _skill_list(lessons: LearningControl) -> str:
    lines = [_skill_line(one) for one in await lessons.skills()]
    lines += [_skill_line(one) for one in await lessons.bundles()]
    return "\n".join(lines) or "There are no skills yet."


async def _bundles(context: CommandContext, words: str) -> CommandReply:
    if words:
        raise UsageError("/bundles takes no words.", hint="/<name> follows one of them.")
    lines = [_skill_line(one) for one in await _learning(context).bundles()]
    none = "There are no bundles yet: `hermes bundles create` makes one."
    return TextReply("\n".join(lines) or none)


def _skill_line(one: SkillSummary) -> str:
    about = f": {one_line(one.description, 120)}" if one.description else ""
    return f"/{one.name}{_marks_text(one.marks)}{about}"


def _marks_text(marks: Sequence[str]) -> str:
    return f" ({', '.join(marks)})" if marks else ""


async def _changes(context: CommandContext, words: str) -> CommandReply:
    lessons = _learning(context)
    match words.split():
        case []:
            return TextReply(await _recent_changes(lessons))
        case ["show", name]:
            return TextReply(await lessons.shown(name))
        case ["approve", name]:
            return TextReply("\n".join(await lessons.accept(name)))
        case ["reject", name]:
            return TextReply(f"{plural(await lessons.reject(name), 'proposal')} rejected.")
        case ["undo", name]:
            return TextReply(await lessons.undo(name))
        case _:
            raise UsageError(
                "/changes takes show, approve, reject or undo, and an id.",
                hint="For example: /changes show 1a2b3c",
            )


async def _recent_changes(lessons: LearningControl) -> str:
    waiting, changes = await lessons.waiting(), await lessons.changes(_MAX_NEWEST)
    lines = ["Waiting for you:", *waiting, ""] if waiting else []
    lines += changes or ["Nothing was ever changed."]
    if waiting:
        lines.append("/changes approve ID or reject ID decides; show ID tells all of it.")
    if changes:
        lines.append("/changes show ID tells all of it; undo ID puts it back as it was.")
    return "\n".join(lines)


async def _curator(context: CommandContext, words: str) -> CommandReply:
    return TextReply(await _learning(context).curation_report())


async def _reload_skills(context: CommandContext, words: str) -> CommandReply:
    count = len(await _learning(context).skills())
    # The prompt lists them, so the next turn writes a new one.
    await context.conversation.change(SessionChange(system=""))
    return TextReply(f"There are {plural(count, 'skill')}. The next turn is told of them anew.")


async def _learn(context: CommandContext, words: str) -> CommandReply:
    if not words:
        raise UsageError("What is to be learned?", hint="For example: /learn how we release")
    if _missing_tool_note(context, "skill_manage", _NO_SKILL_EDITOR):
        raise UsageError(_NO_SKILL_EDITOR, hint="/model chooses another one.")
    asked = _LEARN_PROMPT.read_text("utf-8").strip().replace("{what}", words)
    return SubmitReply((Text(asked),), told="It is to become a skill.")


def _missing_tool_note(context: CommandContext, tool: str, told: str) -> str:
    """A line more, where the tools of who answers are known and that one is not among them."""
    toolbox, session = context.services.toolbox, context.conversation.session
    if toolbox is None:
        return ""
    there = toolbox.offered(context.seat.platform or session.source, context.role, session)
    return "" if any(one.name == tool for one in there) else f"\n\n{told}"


def _learning(context: CommandContext) -> LearningControl:
    lessons = context.services.lessons
    if lessons is None:
        raise UsageError("Nothing is learned here.")
    return lessons


def _has_learning(context: CommandContext) -> bool:
    return context.services.lessons is not None


COMMANDS = (
    Command(
        name="memory",
        usage="[pending | approve id | reject id | approval on|off]",
        summary="Show what is remembered, and decide what shall be.",
        owners=True,
        needs=_has_learning,
        run=_memory,
    ),
    Command(
        name="skills",
        usage="[list | show name | pin name | unpin name]",
        summary="Show the skills; /<name> follows one.",
        owners=True,
        needs=_has_learning,
        run=_skills,
    ),
    Command(
        name="bundles",
        summary="Show the names under which several skills are followed.",
        owners=True,
        needs=_has_learning,
        run=_bundles,
    ),
    Command(
        name="changes",
        usage="[show id | approve id | reject id | undo id]",
        summary="Show what the agent changed in memory and skills, and take it back.",
        owners=True,
        needs=_has_learning,
        run=_changes,
    ),
    Command(
        name="curator",
        summary="Show when skills were last looked after, and what came of it.",
        owners=True,
        needs=_has_learning,
        run=_curator,
    ),
    Command(
        name="reload-skills",
        summary="Have the agent told anew which skills there are.",
        owners=True,
        needs=_has_learning,
        run=_reload_skills,
    ),
    Command(
        name="learn",
        usage="<what>",
        summary="Have a skill written about something.",
        owners=True,
        needs=_has_learning,
        run=_learn,
    ),
)
