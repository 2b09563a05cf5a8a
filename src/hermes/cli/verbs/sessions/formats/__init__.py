"""Export formats of sessions: lossless JSON lines, Markdown and HTML."""
