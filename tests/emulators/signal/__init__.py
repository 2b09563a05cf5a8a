"""An emulator of signal-cli's HTTP daemon."""
