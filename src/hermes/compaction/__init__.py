"""Compaction: replace the older part of a long conversation by a summary."""
