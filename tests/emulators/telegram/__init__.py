"""An emulator of the Bot API that enforces its documented rules."""
