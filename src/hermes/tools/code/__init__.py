"""The `execute_code` tool."""
