"""The owner's hooks: shell commands in the settings, and Python files in the home."""
