"""Durable state in one SQLite file, with blobs as files next to it."""
