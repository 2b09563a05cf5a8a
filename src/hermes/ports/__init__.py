"""Protocols the core depends on: models, tools, stores, channels, sandboxes."""
