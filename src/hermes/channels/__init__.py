"""Messaging platforms: each a driver behind the channel port."""
