"""The commands of every surface, put together from the modules that hold them."""

from hermes.commands import (
    background,
    choices,
    context,
    conversation,
    files,
    information,
    learning,
    leave,
    operation,
    past,
    runtimes,
    terminal,
    trust,
)

COMMANDS = (
    *conversation.COMMANDS,
    *past.COMMANDS,
    *files.COMMANDS,
    *choices.COMMANDS,
    *runtimes.COMMANDS,
    *context.COMMANDS,
    *information.COMMANDS,
    *operation.COMMANDS,
    *learning.COMMANDS,
    *background.COMMANDS,
    *leave.COMMANDS,
    *trust.COMMANDS,
    *terminal.COMMANDS,
)
