"""Many conversations at once: who may speak, what is said where, and that it arrives."""
