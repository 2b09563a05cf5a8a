"""Turns run by `codex app-server`, a coding agent in a separate process."""
