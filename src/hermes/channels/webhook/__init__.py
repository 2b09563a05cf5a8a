"""The webhook channel: other programs trigger the agent with a signed HTTP call."""
