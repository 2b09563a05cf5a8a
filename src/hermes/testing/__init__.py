"""Fakes, fake servers and contract suites for tests, also those of plugins."""
