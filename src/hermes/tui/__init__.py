"""The terminal UI: the same conversation as in the plain chat, on a whole screen."""
