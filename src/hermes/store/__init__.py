"""Durable state in one SQLite file, and blobs beside it."""
