"""Real clients against a real gateway: `make clients` installs and runs them and prints a table."""
