"""Minds that run whole turns by themselves; each implements `ports.runtime`."""
