"""The `delegate_task` tool."""
