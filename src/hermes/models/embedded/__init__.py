"""A small model that runs on this machine, in a child process."""
