"""Run one turn: ask the model, run its tool calls, guard against loops."""
