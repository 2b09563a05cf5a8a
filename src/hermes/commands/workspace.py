"""Slash commands about the working directory: what changed in it, and its AGENTS.md."""

from pathlib import Path

from hermes.commands.command import Availability, Command, CommandContext, require_service
from hermes.schema.messages import command_parts
from hermes.schema.terminal import CommandReply, SubmitReply, TextReply

_INIT_PROMPT = Path(__file__).with_name("init.md")


async def _diff(context: CommandContext, args: str) -> CommandReply:
    changes = require_service(context.services.changes, "Changes cannot be shown here.")
    text = await changes.diff(context.conversation.session, args)
    if not text:
        return TextReply("Nothing has changed since the last commit.")
    return TextReply(text, is_diff=True)


async def _init(context: CommandContext, args: str) -> CommandReply:
    focus = f" Pay attention to this: {args}" if args else ""
    prompt = _INIT_PROMPT.read_text("utf-8").strip().replace("{what}", focus)
    parts = command_parts(f"/init {args}", prompt)
    return SubmitReply(parts, notice="Reading the project to write its AGENTS.md.")


COMMANDS = (
    Command(
        name="diff",
        usage="[path]",
        summary="Show what changed since the last commit.",
        availability=Availability.TERMINAL,
        owner_only=True,
        is_available=lambda context: context.services.changes is not None,
        run=_diff,
    ),
    Command(
        name="init",
        usage="[what matters]",
        summary="Write an AGENTS.md for this project.",
        availability=Availability.TERMINAL,
        owner_only=True,
        run=_init,
    ),
)
