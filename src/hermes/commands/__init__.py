"""Slash commands, implemented once for all surfaces, which decide how answers are shown."""
