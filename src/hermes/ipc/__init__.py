"""The door for people on this machine: a socket in the home, and the thin client before it."""
