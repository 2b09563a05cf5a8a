"""Boards of tasks that agents and people work on."""
