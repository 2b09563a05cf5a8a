"""Run shell commands and make their output readable."""
