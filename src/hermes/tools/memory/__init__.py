"""The `memory` tool."""
