"""Sandboxes, and the spawner that starts every process."""
