"""Scheduled jobs: definitions, schedules and runs."""
