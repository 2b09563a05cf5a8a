"""The commands of every surface, put together from the modules that hold them."""

from hermes.commands import choices, conversation, information, operation, past, terminal

COMMANDS = (
    *conversation.COMMANDS,
    *past.COMMANDS,
    *choices.COMMANDS,
    *information.COMMANDS,
    *operation.COMMANDS,
    *terminal.COMMANDS,
)
