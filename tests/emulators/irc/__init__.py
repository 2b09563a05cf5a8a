"""An IRC server with accounts, history and messages of several lines, for tests."""
