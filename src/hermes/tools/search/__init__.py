"""Find text and files with ripgrep."""
