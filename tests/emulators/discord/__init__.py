"""An emulator of Discord: its HTTP API and gateway, with the documented rules."""
