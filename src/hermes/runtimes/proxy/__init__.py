"""Turns run by another gateway, over its OpenAI-compatible API."""
