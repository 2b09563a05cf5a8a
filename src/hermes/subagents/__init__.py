"""Agents that work for another one: each with a session, a budget and an end of its own."""
