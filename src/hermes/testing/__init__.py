"""Fakes, fake servers and contract suites for tests, including those of plugins."""
