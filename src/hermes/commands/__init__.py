"""Slash commands, once for every surface: what they do, never how the answer is shown."""
