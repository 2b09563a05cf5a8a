"""The commands of every surface, put together from the modules that hold them."""

from hermes.commands import (
    background,
    choices,
    conversation,
    files,
    information,
    leave,
    operation,
    past,
    terminal,
)

COMMANDS = (
    *conversation.COMMANDS,
    *past.COMMANDS,
    *files.COMMANDS,
    *choices.COMMANDS,
    *information.COMMANDS,
    *operation.COMMANDS,
    *background.COMMANDS,
    *leave.COMMANDS,
    *terminal.COMMANDS,
)
