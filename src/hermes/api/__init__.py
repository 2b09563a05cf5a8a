"""The HTTP API server: OpenAI-compatible endpoints, runs, sessions and callbacks."""
