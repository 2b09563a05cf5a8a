"""Render Markdown for the dialect and length limit of a channel."""
