"""Everyday tasks that the embedded model solves with the complete app."""
