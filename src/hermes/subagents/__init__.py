"""Subagents: delegated tasks, each in its own session with its own budget."""
