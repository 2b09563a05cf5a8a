"""The gateway as a process: served profiles, lock, status and shutdown."""
