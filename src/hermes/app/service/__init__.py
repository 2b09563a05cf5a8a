"""The gateway process: which profiles it serves, its lock, its status, its end."""
