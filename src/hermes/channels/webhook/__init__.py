"""The webhook channel: other programs wake the agent by a signed HTTP call."""
