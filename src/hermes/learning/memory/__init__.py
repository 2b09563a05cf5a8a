"""The agent's memory: notes about its work and about the user, in two small files."""
