"""Log files."""
