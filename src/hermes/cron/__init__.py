"""Scheduled jobs: what they are, when they fire, and how a fire is run."""
