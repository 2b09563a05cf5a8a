"""Runtimes that run whole turns outside the agent loop; each implements `ports.runtime`."""
