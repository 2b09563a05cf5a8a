"""Run shell commands: the tool and what makes its output readable."""
