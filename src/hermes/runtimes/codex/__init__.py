"""Turns that are run by `codex app-server`, a coding agent in a process of its own."""
