"""`/<skill> words`: a turn in which the agent follows that skill."""

from hermes.commands.command import Ask, Command, Context, Reply
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text


def skill_command(name: str) -> Command:
    async def run(context: Context, words: str) -> Reply:
        lessons = context.services.lessons
        if lessons is None:
            raise UsageError("There are no skills here.")
        text = await lessons.opened(name, context.conversation.session.id)
        asked = words or "Follow it now, for what we are at."
        typed = Text(f"/{name} {words}".rstrip())
        return Ask((typed, Text(f"{text}\n\n{asked}")), told=f"With the skill {name}.")

    return Command(
        name=name, usage="[words]", summary=f"Follow the skill {name}.", owners=True, run=run
    )
