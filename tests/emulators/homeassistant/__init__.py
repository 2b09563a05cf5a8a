"""Emulates the interfaces of Home Assistant that the channel uses."""
