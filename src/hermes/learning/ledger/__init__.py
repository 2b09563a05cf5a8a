"""Changes to what the agent has learned: files of the user, where every change can be undone."""
