"""The gateway: authorize chat messages, run their sessions and deliver the answers."""
