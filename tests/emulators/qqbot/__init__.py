"""An emulator of QQ's bot platform."""
