"""Stored text made safe to look at; the terminal UI shows the same, so it is kept below both."""

from hermes.kit.plain import fit, flat, harmless, pad, width_of

__all__ = ["fit", "flat", "harmless", "pad", "width_of"]
