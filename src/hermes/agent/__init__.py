"""The mind at work: one turn from a question to its end, and the rules it keeps."""
