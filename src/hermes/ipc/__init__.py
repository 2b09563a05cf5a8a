"""The local socket between the CLI and the gateway, and the client for it."""
