"""Drivers of the bus."""
