"""List all built-in slash commands."""

from hermes.commands import (
    administration,
    approvals,
    background,
    checkpoints,
    context_window,
    information,
    learning,
    preferences,
    sessions,
    terminal,
)

COMMANDS = (
    *sessions.COMMANDS,
    *sessions.SESSION_COMMANDS,
    *checkpoints.COMMANDS,
    *preferences.COMMANDS,
    *preferences.RUNTIME_COMMANDS,
    *context_window.COMMANDS,
    *information.COMMANDS,
    *administration.COMMANDS,
    *learning.COMMANDS,
    *background.COMMANDS,
    *approvals.COMMANDS,
    *approvals.TRUST_COMMANDS,
    *terminal.COMMANDS,
)
