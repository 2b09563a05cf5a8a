"""An emulator of Slack: Web API and Socket Mode with their documented rules."""
