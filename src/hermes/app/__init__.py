"""Composition root: builds the objects of a profile from its settings."""
