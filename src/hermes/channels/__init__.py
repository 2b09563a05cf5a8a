"""Messaging platforms: one driver each, behind the channel port."""
